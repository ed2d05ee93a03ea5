package api_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/access"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

func verdictOf(v *pb.VerifyResponse, invariant string) pb.Verdict {
	for _, c := range v.GetChecks() {
		if c.GetInvariant() == invariant {
			return c.GetVerdict()
		}
	}
	return 0
}

// Verify over etcd, shards and mirrors: whole, then broken and counted, then
// unchecked.
func TestVerifyOverTheWire(t *testing.T) {
	p := newPlant(t)
	ctx, viewer := testkit.Deadline(t), p.as(access.Viewer)
	v, err := viewer.Reports.Verify(ctx, &pb.VerifyRequest{})
	if err != nil || !v.GetOk() || v.GetRevision() == 0 || len(v.GetChecks()) != 10 {
		t.Fatalf("%v, %v", v, err)
	}
	for _, c := range v.GetChecks() {
		if want := map[string]pb.Verdict{"I6": pb.Verdict_VERDICT_SKIPPED, "I10": pb.Verdict_VERDICT_SKIPPED}[c.GetInvariant()]; c.GetVerdict() != max(want, pb.Verdict_VERDICT_OK) {
			t.Errorf("%v", c)
		}
	}
	if _, err := viewer.Reports.Verify(ctx, &pb.VerifyRequest{CampaignId: "nobody"}); status.Code(err) != codes.NotFound {
		t.Errorf("unknown campaign: %v", err)
	}
	p.mirrors["cell-1"].facts = &pb.GetMirrorResponse{Present: true, FenceVersion: 1, Stock: 41}
	p.exec("cell-2", "UPDATE cellquota.stock SET available = available - 1, reserved = reserved + 1")
	if v, err = viewer.Reports.Verify(ctx, &pb.VerifyRequest{CampaignId: "c"}); err != nil || v.GetOk() {
		t.Fatalf("%v, %v", v, err)
	}
	for _, i := range []string{"I2", "I5", "I9"} {
		if verdictOf(v, i) != pb.Verdict_VERDICT_BROKEN {
			t.Errorf("%s: %s", i, verdictOf(v, i))
		}
	}
	err = testutil.GatherAndCompare(p.registry, strings.NewReader(`
# HELP cellquota_invariant_breaches_total Breaches that verifications found, by invariant. Each verification counts what it sees.
# TYPE cellquota_invariant_breaches_total counter
cellquota_invariant_breaches_total{invariant="I1"} 0
cellquota_invariant_breaches_total{invariant="I10"} 0
cellquota_invariant_breaches_total{invariant="I2"} 1
cellquota_invariant_breaches_total{invariant="I3"} 0
cellquota_invariant_breaches_total{invariant="I4"} 0
cellquota_invariant_breaches_total{invariant="I5"} 1
cellquota_invariant_breaches_total{invariant="I6"} 0
cellquota_invariant_breaches_total{invariant="I7"} 0
cellquota_invariant_breaches_total{invariant="I8"} 0
cellquota_invariant_breaches_total{invariant="I9"} 2
`), "cellquota_invariant_breaches_total")
	if err != nil { // cell-2's mirror shows 40, its shard 39
		t.Error(err)
	}
}

// A book in etcd that breaks its law is a breach of I1, by its key.
func TestABrokenBookInEtcdIsABreach(t *testing.T) {
	p := newPlant(t)
	raw := p.raw(t)
	key := "/cellquota/books/c/s"
	got, err := raw.Get(t.Context(), key)
	if err != nil || len(got.Kvs) != 1 {
		t.Fatal(err)
	}
	value := strings.Replace(string(got.Kvs[0].Value), "\x18\x64", "\x18\x63", 1) // sale_limit 100 → 99
	if value == string(got.Kvs[0].Value) {
		t.Fatal("the limit was not found in the value")
	}
	if _, err := raw.Put(t.Context(), key, value); err != nil {
		t.Fatal(err)
	}
	v, err := p.as(access.Viewer).Reports.Verify(testkit.Deadline(t), &pb.VerifyRequest{})
	if err != nil || v.GetOk() || verdictOf(v, "I1") != pb.Verdict_VERDICT_BROKEN || !strings.Contains(v.GetBreaches()[0].GetDetail(), key) {
		t.Fatalf("%v, %v", v, err)
	}
	p.caughtUp()
	st, err := p.as(access.Viewer).Reports.GetStatus(testkit.Deadline(t), &pb.GetStatusRequest{})
	if err != nil || len(st.GetQuarantined()) != 1 || st.GetQuarantined()[0] != key || len(st.GetGates()) != 0 {
		t.Fatalf("%v, %v", st, err)
	}
}

// Status asks processes for their gates where it is told to; whoever does not answer is named.
func TestStatusWithGates(t *testing.T) {
	p := newPlant(t)
	st, err := p.as(access.Viewer).Reports.GetStatus(testkit.Deadline(t), &pb.GetStatusRequest{Gates: true})
	if err != nil || len(st.GetGates()) == 0 {
		t.Fatalf("%v, %v", st, err)
	}
	for _, g := range st.GetGates() {
		if g.GetCellId() == "" || len(g.GetProcesses())+len(g.GetUnreachable()) == 0 {
			t.Errorf("%v", g)
		}
	}
}

func TestSilentShardsAreNamed(t *testing.T) {
	p := newPlant(t)
	p.exec("cell-1", "SELECT sale.sell(1, 's', 'u1')")
	p.mirrors["cell-1"].facts = &pb.GetMirrorResponse{Present: true, FenceVersion: 1, Stock: 39}
	p.unreachable("cell-2")
	ctx, viewer := testkit.Deadline(t), p.as(access.Viewer)
	v, err := viewer.Reports.Verify(ctx, &pb.VerifyRequest{})
	if err != nil || !v.GetOk() || verdictOf(v, "I3") != pb.Verdict_VERDICT_UNCHECKED || !strings.Contains(v.GetUnchecked()[0].GetWhat(), "cell-2") {
		t.Fatalf("%v, %v", v, err)
	}
	sales, err := viewer.Reports.GetSales(ctx, &pb.GetSalesRequest{CampaignId: "c"})
	if err != nil || len(sales.GetStocks()) != 2 || sales.GetStocks()[1].GetUnreachable() == "" || sales.GetStocks()[1].GetStock() != nil {
		t.Fatalf("%v, %v", sales, err)
	}
	resolved, err := viewer.Reports.ResolveRequests(ctx, &pb.ResolveRequestsRequest{Keys: []*pb.RequestKey{
		{CampaignId: "c", SkuId: "s", UserId: "nobody", RequestId: "q-nobody"}, {CampaignId: "c", SkuId: "s", UserId: "u1", RequestId: "q-u1"},
	}})
	if err != nil || len(resolved.GetRequests()) != 2 || len(resolved.GetRequests()[0].GetRows()) != 0 || resolved.GetUnreachable()["cell-2"] == "" || resolved.GetMessagesFrom()["cell-1"] != 1 {
		t.Fatalf("%v, %v", resolved, err)
	}
	if r := resolved.GetRequests()[1].GetRows(); len(r) != 1 || r[0].GetCellId() != "cell-1" || r[0].GetOutcome() != "ORDERED" || r[0].GetOrderState() != pb.OrderState_ORDER_STATE_PENDING_PAYMENT || r[0].GetQuantity() != 1 {
		t.Fatalf("%v", r)
	}
	if got, err := viewer.Reports.Trace(ctx, &pb.TraceRequest{Kind: "request", Id: "q-u1"}); err != nil || got.GetUnreachable()["shard of cell-2"] == "" || len(got.GetEvents()) == 0 {
		t.Fatalf("%v, %v", got, err)
	}
	for _, n := range []int{0, 1001} {
		if _, err := viewer.Reports.ResolveRequests(ctx, &pb.ResolveRequestsRequest{Keys: make([]*pb.RequestKey, n)}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%d keys: %v", n, err)
		}
	}
}

// Every kind of id tells what it concerns: the reservation that it belongs to with all its facts, or itself.
func TestTraceOfEveryKind(t *testing.T) {
	p := newPlant(t)
	p.exec("cell-1", "INSERT INTO cellquota.campaigns VALUES ('c', 1, 'PUBLISHED', now(), now() + interval '1 hour', 'SKU', '1 hour', '', now())")
	p.exec("cell-1", "INSERT INTO cellquota.skus VALUES ('c', 's', 10, 'CNY', 'TOKEN')")
	p.exec("cell-1", "SELECT sale.adjust(1, 's', 'more', (SELECT last_number + 1 FROM cellquota.stock WHERE sku_id = 's'), 'GRANT', 2, 'r')")
	p.exec("cell-1", "SELECT sale.sell(1, 's', 'u1')")
	p.exec("cell-1", "SELECT sale.pay(1, 's', 'u1')")
	p.exec("cell-1", `INSERT INTO cellquota.payments (payment_id, order_id, amount, currency, state, refund_id, created_at, updated_at) VALUES ('pay-1', 'o-u1-s', 10, 'CNY', 'REFUND_PENDING', 'refund-1', now(), now())`)
	p.exec("cell-1", `INSERT INTO cellquota.outbox (target, aggregate, event_type, campaign_id, sku_id, payload, created_at) VALUES ('EVENTS', 'req/r-u1-s', 'order.paid', 'c', 's', '', now())`)
	serial := p.text("cell-1", "SELECT token_id FROM cellquota.tokens WHERE reservation_id = 'r-u1-s'")
	free := p.text("cell-1", "SELECT token_id FROM cellquota.tokens WHERE state = 'FREE'")
	event := "outbox-cell-1-" + p.text("cell-1", "SELECT outbox_id::text FROM cellquota.outbox WHERE event_type = 'order.paid'")
	entry := p.text("cell-1", "SELECT entry_id::text FROM cellquota.ledger WHERE action = 'CONFIRM'")
	grant := p.text("cell-1", "SELECT entry_id::text FROM cellquota.ledger WHERE business_no = 'more'")
	whole := []string{"inbox ORDERED", "reservation CONFIRMED", "order PAID", "ledger RESERVE", "ledger CONFIRM", "payment REFUND_PENDING", "outbox order.paid PENDING", "token SOLD"}
	for _, c := range []struct {
		kind, id string
		want     []string
		lacks    string
	}{
		{"payment", "pay-1", whole, ""},
		{"payment", "refund-1", whole, ""},
		{"event", event, whole, ""},
		{"token", serial, append([]string{"ledger GRANT"}, whole...), ""},
		{"token", free, []string{"ledger GRANT", "token FREE"}, "order"},
		{"user", "u1", whole, ""},
		{"user", "nobody", nil, "order"},
		{"adjustment", "more", []string{"adjustment GRANT APPLIED", "ledger GRANT"}, "order"},
		{"entry", entry, whole, ""},
		{"entry", grant, []string{"ledger GRANT"}, "order"},
	} {
		got, err := p.as(access.Viewer).Reports.Trace(testkit.Deadline(t), &pb.TraceRequest{Kind: c.kind, Id: c.id})
		if err != nil {
			t.Fatalf("%s %s: %v", c.kind, c.id, err)
		}
		var story []string
		for _, e := range got.GetEvents() {
			if e.GetCellId() == "cell-1" {
				story = append(story, e.GetStore()+" "+e.GetWhat())
			}
		}
		text := strings.Join(story, "; ")
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s %s: %q lacks %q", c.kind, c.id, text, want)
			}
		}
		if c.lacks != "" && strings.Contains(text, c.lacks) {
			t.Errorf("%s %s: %q has %q", c.kind, c.id, text, c.lacks)
		}
	}
}

// A request's story over the shard and the mirror of its cell, in order of time.
func TestTrace(t *testing.T) {
	p := newPlant(t)
	p.exec("cell-1", "SELECT sale.sell(1, 's', 'u1')")
	p.exec("cell-1", "SELECT sale.pay(1, 's', 'u1')")
	p.mirrors["cell-1"].lookup = &pb.LookupMirrorRequestResponse{Present: true, Fields: map[string]string{"state": "A"}, InStream: true}
	ctx, viewer := testkit.Deadline(t), p.as(access.Viewer)
	got, err := viewer.Reports.Trace(ctx, &pb.TraceRequest{Kind: "request", Id: "q-u1"})
	if err != nil || len(got.GetUnreachable()) != 0 {
		t.Fatalf("%v, %v", got, err)
	}
	var story []string
	for i, e := range got.GetEvents() {
		story = append(story, e.GetStore()+" "+e.GetWhat())
		if i > 2 && e.GetAt().AsTime().Before(got.GetEvents()[i-1].GetAt().AsTime()) {
			t.Errorf("out of order: %v", e)
		}
		if e.GetCellId() != "cell-1" {
			t.Errorf("%v", e)
		}
	}
	text := strings.Join(story, "; ")
	for _, want := range []string{"mirror record; stream not acknowledged by the log", "inbox ORDERED", "ledger RESERVE", "ledger CONFIRM", "order PAID", "reservation CONFIRMED"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q lacks %q", text, want)
		}
	}
	if q := p.mirrors["cell-1"].asked; q.GetUserId() != "u1" || q.GetCampaignId() != "c" { // learnt from the shard
		t.Errorf("%v", q)
	}
	if p.mirrors["cell-2"].asked != nil {
		t.Error("cell-2 has no user to ask for")
	}
	// A derived id names its cell: nobody else is asked.
	p.unreachable("cell-2")
	id := ids.DeriveReservation("c", "s", "u9", "q9", "cell-1", ids.Build{Fence: 1, Count: 1})
	got, err = viewer.Reports.Trace(ctx, &pb.TraceRequest{Kind: "order", Id: string(id.Order())})
	if err != nil || len(got.GetEvents()) != 0 || len(got.GetUnreachable()) != 0 {
		t.Fatalf("%v, %v", got, err)
	}
	for _, bad := range []*pb.TraceRequest{{Kind: "coupon", Id: "x"}, {Kind: "token", Id: "x"}, {Kind: "event", Id: "x"}, {Kind: "event", Id: "outbox-cell-1-x"}, {Kind: "entry", Id: "01"}, {Kind: "user", Id: ""}, {Kind: "order", Id: "x"}, {Kind: "request", Id: ""}} {
		if _, err := viewer.Reports.Trace(ctx, bad); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

// TestTraceOfAUser: a mirror is asked about every request of the user, with the time at which Redis admitted it; one
// that does not answer is named, and the shard's facts are told.
func TestTraceOfAUser(t *testing.T) {
	p := newPlant(t)
	p.exec("cell-1", "SELECT sale.sell(1, 's', 'u1')")
	p.exec("cell-1", `INSERT INTO cellquota.inbox (event_id, reservation_id, request_id, campaign_id, sku_id, user_id, quantity, outcome, reason, topic, partition, kafka_offset, fence_version, build_count, written_under, admitted_at, received_at)
		VALUES ('reserve-r2', 'r2', 'q-again', 'c', 's', 'u1', 1, 'REJECTED', 'ALREADY_RESERVED', 't', 0, 9, 1, 1, 1, now(), now())`)
	p.mirrors["cell-1"].lookup = &pb.LookupMirrorRequestResponse{Present: true, Fields: map[string]string{"state": "A", "admitted_at_ms": "1000"}}
	trace := func() (requests []string, got *pb.TraceResponse) {
		got, err := p.as(access.Viewer).Reports.Trace(testkit.Deadline(t), &pb.TraceRequest{Kind: "user", Id: "u1"})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range got.GetEvents() {
			if e.GetStore() == "mirror" && e.GetAt().AsTime().UnixMilli() == 1000 {
				requests = append(requests, e.GetFields()["request_id"])
			}
		}
		slices.Sort(requests)
		return requests, got
	}
	if asked, got := trace(); !slices.Equal(asked, []string{"q-again", "q-u1"}) || len(got.GetUnreachable()) > 0 {
		t.Errorf("the mirror was asked about %q: %v", asked, got)
	}
	if err := p.store.RevokeLease(testkit.Deadline(t), p.mirrors["cell-1"].lease); err != nil {
		t.Fatal(err)
	}
	p.caughtUp()
	if _, got := trace(); got.GetUnreachable()["mirror of cell-1"] == "" || len(got.GetEvents()) < 4 {
		t.Errorf("no process lives: %v", got)
	}
}

// TestTraceOfAnAdjustment: the journal's word beside the shard's; from the archive once etcd has none; and when the
// shard, or the archive, is gone.
func TestTraceOfAnAdjustment(t *testing.T) {
	p := newPlant(t)
	q := quantity.Must
	id := core.FirstGrantID(core.BookKey{Campaign: "c", SKU: "s"}, "cell-1")
	stores := func(kind, id string) (out []string, unreachable map[string]string) {
		t.Helper()
		got, err := p.as(access.Viewer).Reports.Trace(testkit.Deadline(t), &pb.TraceRequest{Kind: kind, Id: id})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range got.GetEvents() {
			out = append(out, e.GetStore()+" "+e.GetWhat()+" "+e.GetCellId())
		}
		return out, got.GetUnreachable()
	}
	whole := []string{"adjustment GRANT APPLIED cell-1", "journal GRANT DONE APPLIED cell-1", "ledger GRANT cell-1"}
	holds := func(when, kind, id string) {
		t.Helper()
		got, silent := stores(kind, id)
		slices.Sort(got)
		if !slices.Equal(got, whole) || len(silent) > 0 {
			t.Errorf("%s: %q, %v", when, got, silent)
		}
	}
	holds("in etcd", "adjustment", id)
	entry := p.text("cell-1", "SELECT entry_id::text FROM cellquota.ledger WHERE action = 'GRANT'")
	if got, _ := stores("entry", entry); !slices.Contains(got, whole[1]) {
		t.Errorf("its entry: %q", got)
	}
	p.write(func(tx *store.Tx) error {
		c, _, e1 := tx.Campaign("c")
		_, _, e2 := tx.Stock("s")
		c.State = core.CampaignClosed
		return errors.Join(e1, e2, tx.PutCampaign(c), tx.PutStock(core.PhysicalStock{SKU: "s", Units: q(100), Version: 1, Limits: map[ids.CampaignID]quantity.Quantity{"c": q(100)}}))
	})
	testkit.Eventually(t, 20*time.Second, func() error {
		p.settling.Tick(testkit.Deadline(t), p.leader)
		p.caughtUp()
		if left := p.view.Snapshot().Records("c", 0, 10); len(left) > 0 {
			return fmt.Errorf("%d records in etcd", len(left))
		}
		return nil
	})
	holds("in the archive", "adjustment", id)
	p.unreachable("cell-1")
	if got, silent := stores("adjustment", id); !slices.Contains(got, whole[1]) || silent["shard of cell-1"] == "" {
		t.Errorf("the shard is gone: %q, %v", got, silent)
	}
	if err := os.RemoveAll(p.kept); err != nil {
		t.Fatal(err)
	}
	if _, silent := stores("adjustment", id); silent["archive of c"] == "" {
		t.Errorf("the archive is gone: %v", silent)
	}
}
