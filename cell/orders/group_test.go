package orders_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cellquota/cellquota/cell/events"
	"github.com/cellquota/cellquota/internal/testkit"
)

// joins counts how often anybody joins the group from now on.
func (b *bench) joins() *atomic.Int64 {
	var n atomic.Int64
	b.kafka.Fake().ControlKey(kmsg.JoinGroup.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
		b.kafka.Fake().KeepControl()
		n.Add(1)
		return nil, nil, false
	})
	return &n
}

// TestALockedShardDoesNotChurnTheGroup is K69: the shard holds two consumers up for twice the session
// time-out, and a third joins meanwhile. Heartbeats do not wait for the shard, so that nobody is thrown out
// and joins again and again: partitions move once, and afterwards every message has its order once.
func TestALockedShardDoesNotChurnTheGroup(t *testing.T) {
	const partitions, messages = 3, 90
	b := newBench(t, partitions)
	b.session = time.Second
	shortest := "1000"
	altered, err := kadm.NewClient(b.producer).AlterBrokerConfigs(b.ctx, []kadm.AlterConfig{{Name: "group.min.session.timeout.ms", Value: &shortest}})
	b.must(err)
	for _, a := range altered {
		b.must(a.Err)
	}
	b.consume(b.open())
	b.consume(b.open())
	for p := range int32(partitions) {
		b.produce(b.record(fmt.Sprintf("first%d", p), "r", p))
	}
	b.eventually(partitions, "orders")
	joins := b.joins()
	tx, err := b.admin.Begin(b.ctx)
	b.must(err)
	_, err = tx.Exec(b.ctx, "LOCK TABLE cellquota.stock IN EXCLUSIVE MODE")
	b.must(err)
	for i := range messages {
		b.produce(b.record(fmt.Sprintf("u%d", i), "r", int32(i%partitions)))
	}
	b.consume(b.open())
	testkit.Hold(t, 2*b.session, "the shard is locked for twice the session time-out")
	b.must(tx.Rollback(b.ctx))
	b.eventually(messages+partitions, "orders")
	b.eventually(messages+partitions, "inbox")
	// Each joins once to hear of the third, and once more to take what another gave up.
	if n := joins.Load(); n == 0 || n > 3*3 {
		t.Errorf("%d joins of the group", n)
	}
}

// TestAMemberTakesItsPlaceBack: a named process that died without a word consumes again as soon as it is back,
// though the group would keep its place for a minute; one that is stopped leaves its partitions to the
// others at once.
func TestAMemberTakesItsPlaceBack(t *testing.T) {
	b := newBench(t, 2)
	b.session = time.Minute
	b.member = "cell-1.p1"
	_, _, die := b.consume(b.store)
	b.produce(b.record("u1", "r", 0), b.record("u2", "r", 1))
	b.eventually(2, "orders")
	farewells := b.muffle()
	die()
	if farewells.Load() == 0 {
		t.Fatal("it had no farewell to muffle")
	}
	_, _, stop := b.consume(b.store)
	b.produce(b.record("u3", "r", 0), b.record("u4", "r", 1))
	b.eventually(4, "orders")

	b.member = "cell-1.p2"
	b.consume(b.open())
	b.produce(b.record("u5", "r", 0), b.record("u6", "r", 1))
	b.eventually(6, "orders")
	stop()
	b.produce(b.record("u7", "r", 0), b.record("u8", "r", 1))
	b.eventually(8, "orders")
}

// muffle keeps the next farewell from the group: for it somebody dies without a word.
func (b *bench) muffle() *atomic.Int64 {
	var n atomic.Int64
	b.kafka.Fake().ControlKey(kmsg.LeaveGroup.Int16(), func(req kmsg.Request) (kmsg.Response, error, bool) {
		n.Add(1)
		return req.ResponseKind(), nil, true
	})
	return &n
}

// TestMorePartitionsInMidSale is K80: partitions are added to the topic while two consumers run. What a
// producer of the new number puts there becomes orders without a restart, and a user whose messages
// lie in an old and a new partition has one order.
func TestMorePartitionsInMidSale(t *testing.T) {
	b := newBench(t, 1)
	b.consume(b.store)
	b.consume(b.open())
	for i := range 40 {
		b.produce(b.record(fmt.Sprintf("u%d", i), "r", 0))
	}
	topic := events.AdmissionsTopic(cell)
	added, err := kadm.NewClient(b.producer).UpdatePartitions(b.ctx, 4, topic)
	b.must(err)
	b.must(added.Error())
	b.producer = b.kafka.Client(t, manual) // a producer that was started anew, with the new number
	for i := 40; i < 80; i++ {
		b.produce(b.record(fmt.Sprintf("u%d", i), "r", int32(i%4)))
	}
	b.produce(b.record("u0", "r", 3), b.record("u1", "another", 2))
	b.eventually(80, "orders")
	b.eventually(81, "inbox") // of u0's two messages, which are one request, one
	b.eventually(4, "positions")
}
