package oracle

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/cellquota/cellquota/edge/load/history"
	"github.com/cellquota/cellquota/internal/clock"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// shardsFake answers ResolveRequests from a table that changes with each call.
type shardsFake struct {
	pb.ReportServiceClient
	calls   int
	largest int
	answer  func(call int, k *pb.RequestKey) []*pb.ResolvedRow
	silent  map[string]string
	short   bool
}

func (f *shardsFake) ResolveRequests(_ context.Context, in *pb.ResolveRequestsRequest, _ ...grpc.CallOption) (*pb.ResolveRequestsResponse, error) {
	f.calls++
	f.largest = max(f.largest, len(in.GetKeys()))
	out := &pb.ResolveRequestsResponse{MessagesFrom: map[string]int64{"cell-1": 3}, Unreachable: f.silent}
	for _, k := range in.GetKeys() {
		out.Requests = append(out.Requests, &pb.ResolvedRequest{Key: k, Rows: f.answer(f.calls, k)})
	}
	if f.short {
		out.Requests = out.Requests[:len(out.GetRequests())-1]
	}
	return out, nil
}

func ordered(_ int, k *pb.RequestKey) []*pb.ResolvedRow {
	return []*pb.ResolvedRow{{CellId: "cell-1", Outcome: "ORDERED", OrderId: "o-" + k.GetRequestId(), OrderState: pb.OrderState_ORDER_STATE_PAID, Quantity: 1}}
}

func TestBatchesAreBoundedAndInOrder(t *testing.T) {
	f := &shardsFake{answer: ordered}
	var keys []history.Key
	for i := range 2500 {
		keys = append(keys, history.Key{Request: fmt.Sprintf("r%d", i)})
	}
	r := New(f)
	rows, _, err := r.Resolve(t.Context(), keys)
	if err != nil || len(rows) != 2500 || f.largest != 1000 || f.calls != 3 {
		t.Fatalf("%d rows in %d calls of at most %d: %v", len(rows), f.calls, f.largest, err)
	}
	if got := rows[2345][0]; got.Order != "o-r2345" || got.State != "PAID" || got.Outcome != "ORDERED" {
		t.Errorf("row %+v", got)
	}
	if r.MessagesFrom("cell-1") != 3 || r.MessagesFrom("cell-9") != 0 {
		t.Error("messages_from is not kept")
	}
}

func TestAnAnswerThatIsCutShortIsAnError(t *testing.T) {
	if _, _, err := New(&shardsFake{answer: ordered, short: true}).Resolve(t.Context(), []history.Key{{Request: "a"}, {Request: "b"}}); err == nil {
		t.Error("a missing entry was taken for an answer")
	}
}

func TestNoOrderIsNoState(t *testing.T) {
	f := &shardsFake{answer: func(int, *pb.RequestKey) []*pb.ResolvedRow {
		return []*pb.ResolvedRow{{CellId: "cell-1", Outcome: "REJECTED", Reason: "SOLD_OUT"}}
	}}
	rows, _, err := New(f).Resolve(t.Context(), []history.Key{{Request: "a"}})
	if err != nil || rows[0][0].State != "" || rows[0][0].Reason != "SOLD_OUT" {
		t.Errorf("%+v %v", rows, err)
	}
}

func told(records ...history.Record) iter.Seq2[history.Record, error] {
	return func(yield func(history.Record, error) bool) {
		for _, r := range records {
			if !yield(r, nil) {
				return
			}
		}
	}
}

func accepted(request, cell string, fence int64) history.Record {
	return history.Record{Op: history.OpRequest, Status: 202, Request: request, User: "u", Cell: cell, Fence: fence}
}

// settleOn runs Settle on a manual clock that is moved whenever somebody waits for it.
func settleOn(t *testing.T, f *shardsFake, limit time.Duration, records iter.Seq2[history.Record, error]) (undecided int, took time.Duration, err error) {
	t.Helper()
	clk := clock.NewManual(time.Unix(0, 0))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for clk.BlockUntil(ctx, 1) == nil {
			clk.Advance(settleEvery)
		}
	}()
	n, err := Settle(ctx, records, New(f), clk, limit)
	return n, clk.Now().Sub(time.Unix(0, 0)), err
}

func TestSettleWaitsUntilPromisesHaveAnOutcome(t *testing.T) {
	f := &shardsFake{answer: func(call int, k *pb.RequestKey) []*pb.ResolvedRow {
		if k.GetRequestId() == "late" && call < 4 {
			return nil
		}
		return ordered(call, k)
	}}
	n, took, err := settleOn(t, f, time.Minute, told(accepted("early", "cell-1", 3), accepted("late", "cell-1", 3), history.Record{Op: history.OpRequest, Status: 409, Request: "refused"}))
	if n != 0 || err != nil || took != 3*settleEvery {
		t.Errorf("%d undecided, %v, after %s", n, err, took)
	}
}

func TestSettleEndsAtItsBound(t *testing.T) {
	f := &shardsFake{answer: func(int, *pb.RequestKey) []*pb.ResolvedRow { return nil }}
	n, took, err := settleOn(t, f, 5*time.Second, told(accepted("lost", "cell-1", 3)))
	if n != 1 || err != nil || took > 5*time.Second {
		t.Errorf("%d undecided, %v, after %s", n, err, took)
	}
}

func TestSettleDoesNotWaitForWhatCannotCome(t *testing.T) {
	f := &shardsFake{silent: map[string]string{"cell-2": "connection refused"}, answer: func(int, *pb.RequestKey) []*pb.ResolvedRow { return nil }}
	n, took, err := settleOn(t, f, time.Minute, told(accepted("fenced", "cell-1", 2), accepted("silent", "cell-2", 1)))
	if n != 0 || err != nil || took != 0 {
		t.Errorf("%d undecided, %v, after %s", n, err, took)
	}
}

func TestSettleReportsADamagedHistory(t *testing.T) {
	damaged := errors.New("line 3")
	_, err := Settle(t.Context(), func(yield func(history.Record, error) bool) { yield(history.Record{}, damaged) }, New(&shardsFake{}), clock.NewManual(time.Unix(0, 0)), time.Second)
	if !errors.Is(err, damaged) {
		t.Errorf("got %v", err)
	}
}

func TestMerge(t *testing.T) {
	answer := func() *pb.VerifyResponse {
		return &pb.VerifyResponse{Ok: true, Checks: []*pb.Check{
			{Invariant: "I4", Verdict: pb.Verdict_VERDICT_OK}, {Invariant: "I6", Verdict: pb.Verdict_VERDICT_SKIPPED}, {Invariant: "I7", Verdict: pb.Verdict_VERDICT_OK},
		}}
	}
	word := func(v *pb.VerifyResponse, name string) pb.Verdict { return check(v, name).GetVerdict() }

	v := answer()
	Merge(v, history.Report{Records: 7, Requests: 2})
	if word(v, "I6") != pb.Verdict_VERDICT_OK || !v.GetOk() || !strings.Contains(check(v, "I6").GetDetail(), "7 records") {
		t.Errorf("a clean history: %v", v)
	}
	v = answer()
	Merge(v, history.Report{Breaches: []history.Breach{{Invariant: "I4", Key: history.Key{User: "u", Request: "r"}, Detail: "two orders"}}})
	if word(v, "I4") != pb.Verdict_VERDICT_BROKEN || word(v, "I6") != pb.Verdict_VERDICT_OK || v.GetOk() || v.GetBreaches()[0].GetDetail() != "request r of user u: two orders" {
		t.Errorf("a breach: %v", v)
	}
	v = answer()
	Merge(v, history.Report{Unchecked: []history.Breach{{Invariant: "I6", Detail: "cell-2: connection refused"}}})
	if word(v, "I6") != pb.Verdict_VERDICT_UNCHECKED || !v.GetOk() || len(v.GetUnchecked()) != 1 {
		t.Errorf("unchecked: %v", v)
	}
	v = answer()
	v.Checks[0].Verdict, v.Ok = pb.Verdict_VERDICT_BROKEN, false
	Merge(v, history.Report{Unchecked: []history.Breach{{Invariant: "I4"}}})
	if word(v, "I4") != pb.Verdict_VERDICT_BROKEN || v.GetOk() {
		t.Errorf("what the shards broke stays broken: %v", v)
	}
}
