package cell

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/cellquota/cellquota/cell/events"
	"github.com/cellquota/cellquota/internal/testkit"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// vanish deletes the keys of the phone's mirror that end so.
func (w *world) vanish(end string) {
	w.t.Helper()
	r := w.redis.Client(w.t)
	keys, err := r.Keys(w.ctx, "cq:{"+campaign+":"+phone+"}:*"+end).Result()
	w.must(err)
	if len(keys) == 0 {
		w.t.Fatalf("no key ends in %s", end)
	}
	w.must(r.Del(w.ctx, keys...).Err())
}

// TestK04AStreamThatVanishes: in one sale the stream vanishes with what nobody produced yet, then Redis with all
// it has, then the stock alone. Nobody is told "sold out" before it is, what was admitted when the stream
// went has its orders, and the sale ends at exactly what there was.
func TestK04AStreamThatVanishes(t *testing.T) {
	const units, admitted = 20, 3
	w := newWorld(t)
	p := w.sell(units, "--relay-sweep-after=10m", "--relay-scan-after=100ms", "--relay-scan-interval=50ms")
	receipts := map[string]string{}
	for i := range admitted {
		user := fmt.Sprint("admitted-", i)
		receipts[user] = p.admitOnly(user)
	}
	w.vanish(":stream")
	for user, receipt := range receipts {
		p.reaches(user, "r1", receipt, pending)
	}
	for n := admitted; n < units; n++ {
		switch n {
		case 8:
			w.redis.Restart(t)
		case 14:
			w.vanish(":stock:" + phone)
		}
		user := fmt.Sprint("user-", n)
		p.sellsAgain(user)
		p.reaches(user, "r1", "", pending)
	}
	p.settled()
	want(t, p.exchange(w.ask("late", "r1"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_TEMP_SOLD_OUT)
	p.balanced(units, units)
	w.accepted()
}

// produced is a process that admits and produces for a world in which nobody makes orders, with so many
// admissions in the log.
func (w *world) produced(units int32, n int, more ...string) *process {
	w.t.Helper()
	w.sell(units).end() // the mirror's first build wants somebody who consumes
	p := w.start(append([]string{"--roles=admission,relay,outbox"}, more...)...).ready()
	p.stocked(int64(units))
	for i, a := range p.exchange(w.crowdOf(n, func(i int) (string, string) { return fmt.Sprint("user-", i), "r1" })...) {
		if got := want(w.t, a, pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED).GetRequest(); got.GetAck() != pb.Ack_ACK_KAFKA {
			w.t.Fatalf("user-%d: %v", i, got)
		}
	}
	testkit.Eventually(w.t, patience, func() error {
		m, err := p.client.Facts.GetMirror(w.ctx, &pb.GetMirrorRequest{CampaignId: campaign, SkuId: phone})
		if err == nil && m.GetStreamLength() != 0 {
			err = fmt.Errorf("%d entries in the stream", m.GetStreamLength())
		}
		return err
	})
	return p
}

// TestK18TheLogLosesWhatItAcknowledged: the log acknowledged 200 admissions, their entries have left the stream,
// nobody has consumed one; then the topic is gone and comes back empty. The scanner brings each again under
// its own id: each has one order.
func TestK18TheLogLosesWhatItAcknowledged(t *testing.T) {
	const units, n = 300, 200
	w := newWorld(t)
	p := w.produced(units, n, "--relay-scan-after=200ms", "--relay-scan-interval=100ms")
	topic := events.AdmissionsTopic("cell-1")
	w.kafka.DeleteTopic(t, topic)
	w.kafka.CreateTopic(t, topic, 1)
	w.start("--roles=orders")
	testkit.Eventually(t, 2*patience, func() error {
		if got := w.count("SELECT count(*) FROM cellquota.v_orders"); got != n {
			return fmt.Errorf("%d orders of %d acknowledged admissions", got, n)
		}
		return nil
	})
	p.settled()
	p.balanced(units, n)
	w.accepted()
}

// TestK74AnOffsetCommittedTooEarly: somebody committed the group's offset behind forty admissions that nobody
// has made an order of. The position is the shard's: each has its order.
func TestK74AnOffsetCommittedTooEarly(t *testing.T) {
	const units, n = 50, 40
	w := newWorld(t)
	p := w.produced(units, n)
	topic := events.AdmissionsTopic("cell-1")
	var ahead kadm.Offsets
	ahead.AddOffset(topic, 0, 1_000, -1)
	answers, err := kadm.NewClient(w.kafka.Client(t)).CommitOffsets(w.ctx, events.GroupID("cell-1"), ahead)
	w.must(errors.Join(err, answers.Error()))
	w.start("--roles=orders")
	for i := range n {
		p.reaches(fmt.Sprint("user-", i), "r1", "", pending)
	}
	p.settled()
	p.balanced(units, n)
	w.accepted()
}

// TestK28NothingIsTrimmed: while the log is away 250 are after a stream that may hold 100. No more than that are
// admitted, everybody else is told to come back, and when the log is back each admitted one has an order.
func TestK28NothingIsTrimmed(t *testing.T) {
	const most, callers = 100, 250
	w := newWorld(t)
	p := w.sell(1000, "--admission-stream-max=100")
	asks := w.crowdOf(callers, func(i int) (string, string) { return fmt.Sprint("user-", i), "r1" })
	for _, a := range asks {
		a.WaitMs = 200
	}
	w.kafka.Stop(t)
	var admitted []string
	for i, a := range p.exchange(asks...) {
		switch a.GetOutcome() {
		case pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED:
			admitted = append(admitted, fmt.Sprint("user-", i))
		case pb.AdmitOutcome_ADMIT_OUTCOME_QUEUE_FULL, pb.AdmitOutcome_ADMIT_OUTCOME_PAUSED:
		default:
			t.Fatalf("user-%d is told %v", i, a)
		}
	}
	m, err := p.client.Facts.GetMirror(w.ctx, &pb.GetMirrorRequest{CampaignId: campaign, SkuId: phone})
	w.must(err)
	if len(admitted) == 0 || len(admitted) > most || m.GetStreamLength() != int64(len(admitted)) {
		t.Fatalf("%d were admitted, %d are in a stream of %d", len(admitted), m.GetStreamLength(), most)
	}
	w.kafka.Start(t)
	for _, user := range admitted {
		p.reaches(user, "r1", "", pending)
	}
	p.settled()
	p.balanced(1000, int64(len(admitted)))
	w.accepted()
}

// TestK33TheShardKnowsBetter: the mirror has forgotten two buyers, one who paid and one who did not, and admits
// each once more. The shard refuses both with the reason, the mirror has its units back exactly once and
// knows the two again, and the others can buy all that is left.
func TestK33TheShardKnowsBetter(t *testing.T) {
	const units = 5
	w, p := selling(t, units)
	orders := p.buy(2)
	_, err := p.succeeded(orders[0], "pay-1")
	w.must(err)
	p.settled()
	marks := w.redis.Client(t)
	again := []pb.AdmitOutcome{pb.AdmitOutcome_ADMIT_OUTCOME_ALREADY_PURCHASED, pb.AdmitOutcome_ADMIT_OUTCOME_ALREADY_RESERVED}
	for i, reason := range []pb.Reason{pb.Reason_REASON_ALREADY_PURCHASED, pb.Reason_REASON_ALREADY_RESERVED} {
		user := fmt.Sprint("user-", i)
		w.must(marks.HDel(w.ctx, p.mirrorPrefix()+"1.1:marks", user).Err())
		got := want(t, p.exchange(w.ask(user, "r2"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED).GetRequest()
		if v := p.reaches(user, "r2", got.GetReceipt(), pb.RequestState_REQUEST_STATE_REJECTED); v.GetReason() != reason {
			t.Errorf("%s: %v, want %s", user, v, reason)
		}
		p.settled() // the mirror has what the shard has: the unit came back, once
		if a := p.exchange(w.ask(user, "r3"))[0]; a.GetOutcome() != again[i] || a.GetRequest().GetRequestId() != "r1" {
			t.Errorf("%s asks again and is told %v", user, a)
		}
	}
	for i := range units - 2 {
		want(t, p.exchange(w.ask(fmt.Sprint("next-", i), "r1"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED)
		p.reaches(fmt.Sprint("next-", i), "r1", "", pending)
	}
	want(t, p.exchange(w.ask("late", "r1"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_TEMP_SOLD_OUT)
	if n := w.count("SELECT count(*) FROM cellquota.v_orders"); n != units {
		t.Errorf("%d orders of %d units", n, units)
	}
	w.accepted()
}

// TestK64TheRecordIsGone: the mirror's record of a request is gone, as after its time. Its status is the shard's,
// and the request sent again has the same reservation, over either of two processes.
func TestK64TheRecordIsGone(t *testing.T) {
	w := newWorld(t)
	p, q := w.sellTwo(5, nil)
	order := p.buy(1)[0]
	p.settled()
	w.vanish("record:" + phone + ":r1:user-0")
	if v := q.reaches("user-0", "r1", "", pending); v.GetOrderId() != order {
		t.Errorf("its status is %v", v)
	}
	var told []string
	for _, one := range []*process{p, q, p} {
		told = append(told, want(t, one.exchange(w.ask("user-0", "r1"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_REPLAYED).GetRequest().GetReservationId())
	}
	if slices.Sort(told); told[0] == "" || told[0] != told[2] {
		t.Errorf("repeats have %v", told)
	}
	p.settled()
	p.balanced(5, 1)
	w.accepted()
}
