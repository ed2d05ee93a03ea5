package cell

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/cellquota/cellquota/cell/events"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/testkit"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// admissions reads so many records of the cell's topic, from its start.
func (w *world) admissions(n int) (records []*kgo.Record) {
	w.t.Helper()
	client := w.kafka.Client(w.t, kgo.ConsumeTopics(events.AdmissionsTopic("cell-1")), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	for len(records) < n {
		fetches := client.PollFetches(w.ctx)
		w.must(w.ctx.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			if h, err := events.ParseHeaders(r.Headers); err == nil && h.Type == events.TypeAdmission {
				records = append(records, r)
			}
		})
	}
	return records
}

// resend is a record's copy, to be produced as a new one.
func resend(r *kgo.Record, change ...kgo.RecordHeader) *kgo.Record {
	out := &kgo.Record{Topic: r.Topic, Partition: r.Partition, Key: r.Key, Value: r.Value}
	for _, h := range r.Headers {
		for _, c := range change {
			if c.Key == h.Key {
				h = c
			}
		}
		out.Headers = append(out.Headers, h)
	}
	return out
}

// rewind makes the shard ask for the log from its start, as after a restored backup.
func (w *world) rewind() {
	w.t.Helper()
	w.exec("UPDATE cellquota.positions SET next_offset = 0, leader_epoch = -1")
}

// TestC04OneMessageDelivered100Times is C-04, C-05 and C-07 and fault 2: the message of one
// reservation comes a hundred times more as new records of the broker, a hundred times under other message
// ids, and all of that again from the log's start to a process that is started anew. It has one order.
func TestC04OneMessageDelivered100Times(t *testing.T) {
	const times = 100
	w, p := selling(t, 10)
	got := want(t, p.exchange(w.ask("alice", "r1"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED).GetRequest()
	order := p.reaches("alice", "r1", got.GetReceipt(), pending).GetOrderId()
	original := w.admissions(1)[0]
	var again []*kgo.Record
	for i := range times {
		again = append(again, resend(original), resend(original, kgo.RecordHeader{Key: events.HeaderEventID, Value: fmt.Append(nil, "another-", i)}))
	}
	producer := w.kafka.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	w.must(producer.ProduceSync(w.ctx, again...).FirstErr())
	// Behind them: when it is ordered, all of them were.
	want(t, p.exchange(w.ask("bob", "r1"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED)
	p.reaches("bob", "r1", "", pending)
	check := func() {
		t.Helper()
		p.settled()
		p.balanced(10, 2)
		if n := w.count("SELECT count(*) FROM cellquota.v_orders WHERE reservation_id = $1 AND order_id = $2", got.GetReservationId(), order); n != 1 {
			t.Errorf("%d orders of the reservation under its first id", n)
		}
		if n := w.count("SELECT count(*) FROM cellquota.v_inbox"); n != 2 {
			t.Errorf("%d messages have an outcome, want 2", n)
		}
		w.accepted()
	}
	check()
	end := w.count("SELECT max(next_offset) FROM cellquota.v_positions")
	p.end()
	w.rewind()
	p = w.start().ready()
	testkit.Eventually(t, patience, func() error {
		if n := w.count("SELECT max(next_offset) FROM cellquota.v_positions"); n < end {
			return fmt.Errorf("consumed to %d of %d", n, end)
		}
		return nil
	})
	check()
}

// TestC11NoAcknowledgementReachesTheBroker is C-11 and fault 3: every commit of an offset fails, for the whole sale,
// and the process is started anew twice. The position is the shard's: nothing is deducted twice.
func TestC11NoAcknowledgementReachesTheBroker(t *testing.T) {
	const users, units = 60, 100
	w := newWorld(t)
	var refused atomic.Int64
	w.kafka.Fake().ControlKey(kmsg.OffsetCommit.Int16(), func(req kmsg.Request) (kmsg.Response, error, bool) {
		w.kafka.Fake().KeepControl()
		refused.Add(1)
		out := req.ResponseKind().(*kmsg.OffsetCommitResponse) //nolint:forcetypeassert // of its own request
		for _, topic := range req.(*kmsg.OffsetCommitRequest).Topics {
			answer := kmsg.NewOffsetCommitResponseTopic()
			answer.Topic, answer.TopicID = topic.Topic, topic.TopicID
			for _, p := range topic.Partitions {
				one := kmsg.NewOffsetCommitResponseTopicPartition()
				one.Partition, one.ErrorCode = p.Partition, kerr.CoordinatorNotAvailable.Code
				answer.Partitions = append(answer.Partitions, one)
			}
			out.Topics = append(out.Topics, answer)
		}
		return out, nil, true
	})
	p := w.sell(units)
	for i := range users {
		want(t, p.exchange(w.ask(fmt.Sprint("user-", i), "r1"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED)
		if i%20 == 10 {
			p.end()
			p = w.start().ready()
			p.sellsAgain(fmt.Sprint("user-", i))
		}
	}
	for i := range users {
		p.reaches(fmt.Sprint("user-", i), "r1", "", pending)
	}
	p.settled()
	p.balanced(units, users)
	w.accepted()
	if refused.Load() == 0 {
		t.Error("nobody tried to commit an offset")
	}
	offsets, err := kadm.NewClient(w.kafka.Client(t)).FetchOffsets(w.ctx, events.GroupID("cell-1"))
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		t.Fatal(err)
	}
	if at, ok := offsets.Lookup(events.AdmissionsTopic("cell-1"), 0); ok && at.At > 0 {
		t.Errorf("the broker has offset %d", at.At)
	}
}

// TestC12TheProcessDiesRightAfterRedis is C-12, fault 1 and R-274: forty admissions are in Redis
// and nowhere else when their process dies. Another process brings each to its order; until then none of
// them reads as unknown. Then Redis dies with all it had, and each order can still be read.
func TestC12TheProcessDiesRightAfterRedis(t *testing.T) {
	const users, units = 40, 50
	w, p := selling(t, units)
	receipts := map[string]string{}
	for i := range users {
		user := fmt.Sprint("user-", i)
		receipts[user] = p.admitOnly(user)
	}
	p.end()
	p = w.start().ready()
	orders := map[string]string{}
	for user, receipt := range receipts {
		testkit.Eventually(t, patience, func() error {
			out, err := p.client.Admissions.GetRequest(w.ctx, &pb.GetRequestRequest{CampaignId: campaign, SkuId: phone, UserId: user, RequestId: "r1", Receipt: receipt})
			if errors.Is(err, rpcstatus.ErrNotFound) {
				t.Fatalf("%s has a receipt and is unknown", user)
			}
			if err == nil && out.GetRequest().GetState() != pending {
				err = fmt.Errorf("request %v", out.GetRequest())
			}
			orders[user] = out.GetRequest().GetOrderId()
			return err
		})
	}
	p.settled()
	p.balanced(units, users)
	w.accepted()
	w.redis.Kill(t)
	for user, order := range orders {
		got, err := p.client.Orders.GetOrder(w.ctx, &pb.GetOrderRequest{OrderId: order, UserId: user})
		w.must(err)
		if got.GetOrder().GetState() != pb.OrderState_ORDER_STATE_PENDING_PAYMENT {
			t.Fatalf("%s's order without Redis: %v", user, got)
		}
		p.reaches(user, "r1", receipts[user], pending)
	}
}

// TestC16BacklogDrainsWithinItsBudget is C-16 and fault 6: nobody consumes while 10,000 callers
// ask. The gate admits what can be settled in its longest wait at the least rate that is assumed, and not
// one more; when consumers come, that backlog is gone within the same budget.
func TestC16BacklogDrainsWithinItsBudget(t *testing.T) {
	const units, rate, budget = 50_000, 500, 4 * time.Second // gate.min_rate's default, gate.max_wait of the campaign
	w := newWorld(t)
	first := w.start().ready() // the mirror's first build
	w.install(1, func(r *pb.CampaignRules) { r.Spec.Gate = &pb.GateRules{MaxWait: durationpb.New(budget)} })
	w.grant(1, units)
	first.stocked(units)
	first.end()
	p := w.start("--roles=admission,relay,outbox,closer").ready()
	p.stocked(units)
	answers := make(map[pb.AdmitOutcome]int)
	over := lines(t, edgeStreams, p)
	asks := w.crowdOf(tenThousand, func(i int) (string, string) { return fmt.Sprint("user-", i), "r1" })
	words := make([]*pb.Answer, len(asks))
	atOnce(len(asks), func(i int) { words[i], _ = over[i%len(over)].call(w.ctx, asks[i]) })
	for i, a := range words {
		if a == nil {
			t.Fatalf("caller %d has no answer", i)
		}
		answers[a.GetOutcome()]++
	}
	admitted := answers[pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED]
	t.Logf("told %v", answers)
	if most := rate * int(budget.Seconds()); admitted == 0 || admitted > most {
		t.Fatalf("%d are outstanding, the bound is %d", admitted, most)
	}
	if sold := answers[pb.AdmitOutcome_ADMIT_OUTCOME_TEMP_SOLD_OUT] + answers[pb.AdmitOutcome_ADMIT_OUTCOME_FINAL_SOLD_OUT]; sold != 0 {
		t.Fatalf("%d were told that it is sold out, with %d units left", sold, units-admitted)
	}
	consumer := w.start("--roles=orders").ready()
	from := time.Now()
	testkit.Eventually(t, patience, func() error {
		if n := w.count("SELECT count(*) FROM cellquota.v_orders"); n != int64(admitted) {
			return fmt.Errorf("%d orders of %d admissions", n, admitted)
		}
		return nil
	})
	took := time.Since(from)
	t.Logf("%d admissions drained in %s, the budget is %s", admitted, took.Round(time.Millisecond), budget)
	if took > budget {
		t.Errorf("a backlog of %d needed %s, its budget is %s", admitted, took, budget)
	}
	p.settled()
	w.accepted()
	consumer.end()
}
