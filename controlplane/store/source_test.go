package store_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
)

// Each record goes to etcd and comes back, through a transaction and through the
// listing alike.
func TestRecordsComeBack(t *testing.T) {
	p := open(t)
	ctx := testkit.Deadline(t)
	at := time.Date(2026, 11, 11, 1, 2, 3, 4, time.UTC)
	homes, err := allocator.DealBuckets([]allocator.CellWeight{{Cell: "cell-1", Weight: 1}, {Cell: "cell-2", Weight: 1}}, allocator.Buckets)
	if err != nil {
		t.Fatal(err)
	}
	cell := core.Cell{Spec: spec, State: core.CellFenced, Version: 4, FenceVersion: 2, OperationID: "op", ProofID: "cell-1/2", InstanceGroup: "a", Reclaimed: true}
	cell.Spec.ID = "cell-1"
	q := quantity.Must
	campaign := core.Campaign{
		Spec: core.CampaignSpec{
			ID: "double-eleven", OpenAt: at, CloseAt: at.Add(time.Hour), Mode: core.ModeDirect, Admission: core.AdmissionMirror, Scope: core.ScopeSKU, MaxQuantity: 1,
			HoldFor: time.Minute, Ack: core.AckKafka, Refund: core.RefundRestock, OnLeaseLoss: core.LeaseLossPause, Reclaim: core.ReclaimNever, Routing: core.RoutingUser,
			Permits: core.PermitRules{ClaimFrom: at, TTL: time.Second}, Gate: core.Gate{MaxWait: time.Second}, Cells: []ids.CellID{"cell-1"},
			SKUs: []core.SKUSpec{{
				ID: "phone-x", PhysicalStock: q(9), SaleLimit: q(8), Inventory: core.InventoryCounter, Price: core.Money{Amount: "1", Currency: "CNY"}, Reserve: q(1),
				Split: core.SplitRules{Policy: allocator.Equal}, TopUp: core.TopUpRules{Policy: core.AutoManual}, Rebalance: core.AutoManual,
			}},
		},
		State: core.CampaignPublished, Version: 3, Owner: "me", PublishedAt: at, OperationID: "op", BookedSKUs: []ids.SKUID{"phone-x"},
		PausedSKUs: []ids.SKUID{"a"}, FinalSKUs: []ids.SKUID{"b"}, CreatedBy: "op0",
		CancelledBy: "op1", ClosedAt: at, SettledAt: at, LastOperation: "op1", LastParameters: "p1", Archive: []core.ArchiveObject{{Name: "double-eleven/journal", SHA256: "ab", Size: 7}},
	}
	route := core.Route{Campaign: "double-eleven", Version: 1, Domains: []core.DomainRoute{{Homes: homes}}}
	record := core.Record{
		ID: "r1", Key: key, Actor: "me", Reason: "why", OperationID: "op", BookVersion: 5, At: at, Parameters: "p",
		Adjustments: []core.Adjustment{{ID: "a1", Key: key, Cell: "cell-1", Kind: core.KindGrant, Units: q(3), State: core.StateBooked, Step: core.Step{FenceVersion: 1, Number: 2}, CreatedAt: at}},
	}
	proof := core.Proof{
		Cell: "cell-1", FenceVersion: 2, Evidence: core.EvidenceStoreFence, Sealed: []core.SKUUnits{{Key: key, Units: q(7)}},
		Stocks:      []core.StockFacts{{Key: key, Granted: q(3), Reserved: q(1), Confirmed: q(2), Version: 9, AdjustmentVersion: 2, LastNumber: 1, LastAdjustmentID: "seal", BookRecordID: "r1"}},
		Adjustments: []core.AppliedAdjustment{{ID: "a1", Key: key, Kind: core.KindGrant, Units: q(3), Outcome: core.OutcomeApplied, Step: core.Step{FenceVersion: 1, Number: 2}}},
		Positions:   []core.Position{{Topic: "t", TopicID: "id", Partition: 1, NextOffset: 2, LeaderEpoch: 3}}, ShardIdentity: "1/2", FencedAt: at,
	}
	stock := core.PhysicalStock{SKU: "phone-x", Units: q(9), Limits: map[ids.CampaignID]quantity.Quantity{"double-eleven": q(8)}, Version: 1}
	op := core.Operation{
		ID: "op", Kind: core.OperationFence, Subject: "cell-1", State: core.OperationRunning, Step: "prove", Detail: "waits", Steps: []core.OperationStep{{Name: "order", At: at, Detail: "d"}},
		Actor: "me", Reason: "why", StartedAt: at, Parameters: "p", Reclaim: true, TopUp: true, InstanceGroup: "b", FenceVersion: 2,
		SaleLimit: q(6), Moves: []core.RebalanceMove{{SKU: "phone-x", From: "cell-1", To: "cell-2", Units: q(2), Why: "2 more are asked for there"}},
	}
	revision, err := p.Update(ctx, "all", func(tx *store.Tx) error {
		_, _, e1 := tx.Cell("cell-1")
		_, _, e2 := tx.Campaign("double-eleven")
		_, _, e3 := tx.Route("double-eleven")
		_, _, e4 := tx.Record("r1")
		_, _, e5 := tx.Proof("cell-1", 2)
		_, _, e6 := tx.Stock("phone-x")
		_, _, e7 := tx.Operation("op")
		return errors.Join(e1, e2, e3, e4, e5, e6, e7, tx.PutCell(cell), tx.PutCampaign(campaign), tx.PutRoute(route),
			tx.PutRecord(record), tx.PutProof(proof), tx.PutStock(stock), tx.PutOperation(op), tx.Audit(core.Audit{Actor: "me", Subject: "s"}))
	})
	if err != nil {
		t.Fatal(err)
	}
	cell.ModRevision, campaign.ModRevision, route.ModRevision, record.ModRevision = revision, revision, revision, revision
	record.CreateRevision, proof.ModRevision, stock.ModRevision = revision, revision, revision
	op.ModRevision, op.CreateRevision, op.Version = revision, revision, 1
	want := map[store.Kind]any{
		store.KindCell: cell, store.KindCampaign: campaign, store.KindRoute: route, store.KindRecord: record,
		store.KindProof: proof, store.KindStock: stock, store.KindOperation: op,
	}
	got := map[store.Kind]any{}
	at2, err := p.List(ctx, func(entries []store.Entry) error {
		for _, e := range entries {
			if e.Err != nil || e.ModRevision != revision {
				t.Errorf("%s at %d: %v", e.Key, e.ModRevision, e.Err)
			}
			got[e.Kind] = e.Value
		}
		return nil
	})
	if err != nil || at2 != revision {
		t.Fatalf("listed at %d, want %d: %v", at2, revision, err)
	}
	for kind, w := range want {
		if !reflect.DeepEqual(got[kind], w) {
			t.Errorf("%s came back as\n%+v\nwant\n%+v", kind, got[kind], w)
		}
	}
	if _, audited := got[store.KindAudit]; audited {
		t.Error("audit events are listed")
	}
}

// The listing pages at one revision although writes go on.
func TestListIsOneRevision(t *testing.T) {
	p := open(t)
	ctx := testkit.Deadline(t)
	for i := range 1_203 {
		if _, err := p.client.Put(ctx, fmt.Sprintf("%s/journal/r%05d", prefix, i), "\x01"); err != nil {
			t.Fatal(err)
		}
	}
	before, err := p.ClusterID(ctx)
	if err != nil || before == 0 {
		t.Fatalf("cluster id %d, %v", before, err)
	}
	pages, records := 0, 0
	revision, err := p.List(ctx, func(entries []store.Entry) error {
		if len(entries) > 0 {
			pages++
		}
		records += len(entries)
		_, err := p.client.Put(ctx, fmt.Sprintf("%s/journal/r%05d-late", prefix, pages), "\x01")
		return err
	})
	if err != nil || records != 1_203 || pages != 3 || revision == 0 {
		t.Fatalf("%d records on %d pages at %d, %v; want 1203 on 3", records, pages, revision, err)
	}
}

func TestWatchDeliversInOrderAndTellsProgress(t *testing.T) {
	p := open(t)
	ctx, cancel := context.WithCancel(testkit.Deadline(t))
	defer cancel()
	from, err := p.List(ctx, func([]store.Entry) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.client.Put(ctx, prefix+"/journal/r1", "broken"); err != nil {
		t.Fatal(err)
	}
	if _, err := p.client.Delete(ctx, prefix+"/journal/r1"); err != nil {
		t.Fatal(err)
	}
	elsewhere, err := p.client.Put(ctx, "/other", "x")
	if err != nil {
		t.Fatal(err)
	}
	var seen []store.Entry
	stop := errors.New("enough")
	err = p.Watch(ctx, from+1, func(b store.Batch) error {
		seen = append(seen, b.Entries...)
		if b.Revision >= elsewhere.Header.Revision { // a change that is not ours: only progress can tell
			return stop
		}
		return nil
	})
	if !errors.Is(err, stop) || len(seen) != 2 || seen[0].Err == nil || seen[0].Deleted || !seen[1].Deleted {
		t.Fatalf("%v, %+v", err, seen)
	}
}

func TestWatchFromACompactedRevisionSaysSo(t *testing.T) {
	p := demo(t)
	p.etcd.Compact(t)
	err := p.Watch(testkit.Deadline(t), 1, func(store.Batch) error { return nil })
	if !errors.Is(err, store.ErrCompacted) {
		t.Fatalf("%v, want ErrCompacted", err)
	}
}
