package settle_test

import (
	"context"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/report/campaignreport"
	"github.com/cellquota/cellquota/controlplane/report/undersell"
	"github.com/cellquota/cellquota/controlplane/report/verify"
	"github.com/cellquota/cellquota/controlplane/settle"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
)

func (w *world) accounts() undersell.Result {
	w.t.Helper()
	got, err := undersell.Reader{Plane: undersell.Fresh{Store: w.store, View: w.view}, Shards: w.reader, Clock: clock.System()}.Read(testkit.Deadline(w.t), "c")
	if err != nil {
		w.t.Fatal(err)
	}
	return got
}

func of(r undersell.Result, cause undersell.Cause) int64 { return r.Accounts[0].Of(cause) }

// I10 from real shards: what came back before the end is left in its cell, what came
// back after it is named so, and a shard that does not answer is frozen and named.
func TestTheAccountOfRealShards(t *testing.T) {
	w := newWorld(t)
	w.shards["cell-1"].sell("a", 10, 6, 3) // 1 stays reserved
	w.shards["cell-1"].do("SELECT sale.entry(1, 's', 'RESTOCK', 'rf-a0', 1, 0, -1)")
	before := w.accounts()
	if a := before.Accounts[0]; a.Confirmed != 5 || a.Of(undersell.Unallocated) != 20 || a.Of(undersell.LeftInCell) != 75 || a.Of(undersell.ReleasedAfterEnd) != 0 || a.Confirmed+a.Unsold() != a.SaleLimit {
		t.Fatalf("before the end: %+v", a)
	}
	w.close()
	testkit.Eventually(t, wait, func() error { return w.passed(w.now().ClosedAt) })
	w.shards["cell-1"].do("SELECT sale.close(1, 's', 'a9')")
	after := w.accounts()
	if of(after, undersell.ReleasedAfterEnd) != 1 || of(after, undersell.LeftInCell) != 74 {
		t.Errorf("after the end: %+v", after.Accounts[0])
	}
	w.shards["cell-1"].do("SELECT sale.entry(1, 's', 'RESTOCK', 'rf-a1', 1, 0, -1)")
	if got := w.accounts(); got.Accounts[0].Confirmed != 4 || of(got, undersell.ReleasedAfterEnd) != 2 || of(got, undersell.LeftInCell) != 74 {
		t.Errorf("a refund that restocked after the end: %+v", got.Accounts[0])
	}
	w.shards["cell-2"].do("SELECT sale.sell(1, 's', 'z')")
	w.shards["cell-2"].do("UPDATE cellquota.reservations SET state = 'MANUAL_REVIEW' WHERE user_id = 'z'")
	if got := w.accounts(); of(got, undersell.UnderReview) != 1 {
		t.Errorf("under review: %+v", got.Accounts[0])
	}
	w.shards["cell-2"].reachable(false)
	w.freshReader()
	if got := w.accounts(); of(got, undersell.Frozen) != 40 || got.Unreachable[ids.CellID("cell-2")] == nil || got.Accounts[0].Unsold()+got.Accounts[0].Confirmed != 100 {
		t.Errorf("unreachable: %+v, %v", got.Accounts[0], got.Unreachable)
	}
}

// passed is nil once a shard's clock is past an instant of the control plane's.
func (w *world) passed(at time.Time) error {
	var now time.Time
	if err := w.shards["cell-1"].conn.QueryRow(w.t.Context(), "SELECT cellquota.now()").Scan(&now); err != nil {
		return err
	}
	if !now.After(at) {
		return context.DeadlineExceeded
	}
	return nil
}

func TestTheMetricShowsTheCauses(t *testing.T) {
	w := newWorld(t).over()
	registry := prometheus.NewRegistry()
	metrics, err := settle.NewMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	d := settle.New(settle.Config{}, settle.Deps{
		Store: w.store, View: w.view, Shards: w.reader, Mirrors: w.cells, Cells: w.cells, Archive: w.archive, Metrics: metrics, Clock: clock.System(), Log: slog.New(slog.DiscardHandler),
	})
	d.Tick(testkit.Deadline(t), w.leader)
	families, err := registry.Gather()
	if err != nil || testutil.CollectAndCount(registry) != 6 {
		t.Fatalf("%v, %v", families, err)
	}
	got := map[string]float64{}
	for _, m := range families[0].GetMetric() {
		got[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
	}
	if got["UNALLOCATED"] != 20 || got["LEFT_IN_CELL"] != 68 {
		t.Errorf("undersell_units: %v", got)
	}
}

// report is what GetCampaignReport answers from.
func (w *world) report() (campaignreport.Report, core.ArchiveObject) {
	w.t.Helper()
	accounts := undersell.Reader{Plane: undersell.Fresh{Store: w.store, View: w.view}, Shards: w.reader, Clock: clock.System(), Totals: true}
	r, object, err := campaignreport.Reader{Accounts: accounts, Archive: w.archive, Clock: clock.System()}.Read(testkit.Deadline(w.t), w.now())
	if err != nil {
		w.t.Fatal(err)
	}
	return r, object
}

// The report live and after settling, its sums against the shards' own; then it is the
// archive's, whatever becomes of the shards.
func TestTheReportLiveAndFromTheArchive(t *testing.T) {
	w := newWorld(t).over()
	w.shards["cell-2"].do(`INSERT INTO cellquota.inbox (event_id, reservation_id, request_id, campaign_id, sku_id, user_id, quantity, outcome, reason, topic, partition, kafka_offset, fence_version, build_count, written_under, admitted_at, received_at)
		VALUES ('reserve-x', 'x', 'qx', 'c', 's', 'x', 2, 'REJECTED', 'SOLD_OUT', 't', 0, 9, 1, 1, 1, now(), now())`)
	live, object := w.report()
	if object.Name != "" || live.Verdict != verify.OK || len(live.Cells) != 2 {
		t.Fatalf("live: %+v, %+v", live, object)
	}
	for _, c := range live.Cells {
		var available, paid, entries int64
		var money string
		if err := w.shards[c.Cell].conn.QueryRow(t.Context(), `SELECT (SELECT available FROM cellquota.stock), (SELECT count(*) FROM cellquota.orders WHERE state = 'PAID'),
			(SELECT count(*) FROM cellquota.ledger), (SELECT sum(amount)::text FROM cellquota.orders WHERE state = 'PAID')`).Scan(&available, &paid, &entries, &money); err != nil {
			t.Fatal(err)
		}
		sold := c.Sales[slices.IndexFunc(c.Sales, func(s campaignreport.Sales) bool { return s.State == "PAID" })]
		if c.Stock.Available != available || sold.Orders != paid || sold.Amount != money || c.Stock.Entries != entries {
			t.Errorf("%s: %+v; the shard has %d available, %d paid for %s, %d entries", c.Cell, c, available, paid, money, entries)
		}
	}
	if rejected := live.Of("s").Requests; !slices.Contains(rejected, campaignreport.Requests{Outcome: "REJECTED", Reason: "SOLD_OUT", Requests: 1, Units: 2}) {
		t.Errorf("requests %+v", rejected)
	}
	for range 4 {
		w.tick()
	}
	w.shards["cell-2"].reachable(false)
	w.freshReader()
	kept, object := w.report()
	if object != w.now().Archive[0] || kept.Verdict != verify.OK || !reflect.DeepEqual(kept.Cells, live.Cells) || !reflect.DeepEqual(kept.SKUs, live.SKUs) {
		t.Errorf("archived: %+v, live it was %+v", kept, live)
	}
}

// Two errors that leave the totals equal are both found: an order that is PAID
// in one cell without its unit, one that is not in the other. Nothing settles on it.
func TestOppositeErrorsAreBothFound(t *testing.T) {
	w := newWorld(t).over()
	for _, s := range w.shards { // which the shard itself refuses
		s.do("ALTER TABLE cellquota.orders DISABLE TRIGGER USER")
	}
	w.shards["cell-1"].do("UPDATE cellquota.orders SET state = 'CLOSED', closed_at = now(), paid_at = NULL WHERE user_id = 'a0'")
	w.shards["cell-2"].sell("z", 1, 0, 1)
	w.shards["cell-2"].do("UPDATE cellquota.orders SET state = 'PAID', closed_at = NULL, paid_at = now() WHERE user_id = 'z0'")
	live, _ := w.report()
	if live.Verdict != verify.Broken || len(live.Breaches) != 2 || live.Orders.Paid != 12 {
		t.Fatalf("%+v", live)
	}
	for range 3 {
		w.tick()
	}
	got := strings.Join(w.driver(w.store, w.archive).Blockers(testkit.Deadline(t), w.now()), "; ")
	for _, want := range []string{"its report does not add up: s cell-1: 6 units in PAID orders; confirmed 7", "s cell-2: 6 units in PAID orders; confirmed 5"} {
		if !strings.Contains(got, want) {
			t.Errorf("blocked by %q, want %q", got, want)
		}
	}
	if len(w.now().Archive) > 0 {
		t.Error("an account was archived on sums that do not hold")
	}
}
