package api_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/access"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
	"github.com/cellquota/cellquota/internal/transport"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// wideName and plainName are formats of cells' ids.
const (
	wideName  = "cell-with-a-name-that-is-nearly-as-long-as-names-may-be-%d"
	plainName = "cell-%d"
)

// plantCells puts n ACTIVE cells into etcd.
func (r *rig) plantCells(n int, name string) {
	r.t.Helper()
	const atOnce = 40
	for first := 1; first <= n; first += atOnce {
		r.update(func(tx *store.Tx) error {
			for i := first; i < min(first+atOnce, n+1); i++ {
				c := core.Cell{State: core.CellActive, Version: 1, FenceVersion: 1, InstanceGroup: "a", Spec: core.CellSpec{
					ID: ids.CellID(fmt.Sprintf(name, i)), Region: "east", InstanceGroup: "a", Weight: 1, Redis: core.RedisSpec{Mode: "standalone", Addrs: []string{"127.0.0.1:1"}},
					Kafka: core.KafkaSpec{Brokers: []string{"127.0.0.1:2"}, Topic: fmt.Sprint("t", i), Partitions: 1, Replication: 1},
					Shard: core.ShardSpec{DSNFile: "a", ReaderDSNFile: "b", FencerDSNFile: fmt.Sprint("f", i)},
				}}
				if _, _, err := tx.Cell(c.Spec.ID); err != nil {
					return err
				}
				if err := tx.PutCell(c); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

func (r *rig) update(middle func(*store.Tx) error) {
	r.t.Helper()
	if _, err := r.store.Update(testkit.Deadline(r.t), "plant", middle); err != nil {
		r.t.Fatal(err)
	}
}

// wideSpec is a campaign of skus SKUs over n cells.
func wideSpec(id string, skus, n int) core.CampaignSpec {
	open := time.Now().Add(-time.Minute)
	spec := core.CampaignSpec{
		ID: ids.CampaignID(id), OpenAt: open, CloseAt: open.Add(time.Hour), Mode: core.ModeDirect, Admission: core.AdmissionMirror, Scope: core.ScopeSKU, MaxQuantity: 1,
		HoldFor: time.Minute, Ack: core.AckKafka, Refund: core.RefundNoRestock, OnLeaseLoss: core.LeaseLossContinue, Reclaim: core.ReclaimManual, Routing: core.RoutingUser,
		Permits: core.PermitRules{ClaimFrom: open, TTL: time.Minute}, Gate: core.Gate{MaxWait: time.Second},
	}
	for i := range n {
		spec.Cells = append(spec.Cells, ids.CellID(fmt.Sprintf(wideName, i+1)))
	}
	for i := range skus {
		spec.SKUs = append(spec.SKUs, core.SKUSpec{
			ID: ids.SKUID(fmt.Sprintf("%s-%04d", strings.Repeat("sku", 19), i)), PhysicalStock: quantity.Must(12_000), SaleLimit: quantity.Must(10_000), Inventory: core.InventoryCounter,
			Price: core.Money{Amount: "1", Currency: "EUR"}, Split: core.SplitRules{Policy: allocator.Equal}, TopUp: core.TopUpRules{Policy: core.AutoManual}, Rebalance: core.AutoManual,
		})
	}
	return spec
}

// TestManySKUsReachEdgesAndCommands: the routes of several campaigns of 1,000 SKUs
// over 100 cells, and the 100,000 allocations of one, are more than the 4 MiB that a
// server takes in; the edge and the command get them whole.
func TestManySKUsReachEdgesAndCommands(t *testing.T) {
	const campaigns, skus, n = 48, 1_000, 100
	r := newRig(t)
	r.plantCells(n, wideName)
	for i := range campaigns {
		spec := wideSpec(fmt.Sprint("c-", i), skus, n)
		r.update(func(tx *store.Tx) error {
			cells, err := tx.Cells()
			if err != nil {
				return err
			}
			domains, err := spec.Deal(cells)
			if err != nil {
				return err
			}
			c := core.Campaign{Spec: spec, State: core.CampaignPublished, Version: 3}
			for _, sku := range spec.SKUs {
				c.BookedSKUs = append(c.BookedSKUs, sku.ID)
			}
			_, _, e1 := tx.Campaign(spec.ID)
			_, _, e2 := tx.Route(spec.ID)
			return errors.Join(e1, e2, tx.PutCampaign(c), tx.PutRoute(core.Route{Campaign: spec.ID, Version: 1, Domains: domains}))
		})
	}
	r.plantBooks(wideSpec("c-0", skus, n))
	r.caughtUp()

	m := recv(t, r.follow("e1", "e1"))
	if size := proto.Size(m); !m.GetFull() || len(m.GetCampaigns()) != campaigns || size <= transport.DefaultMaxMessage {
		t.Fatalf("%d campaigns of %d bytes", len(m.GetCampaigns()), size)
	}
	list, err := r.as(access.Viewer).Quota.ListAllocations(testkit.Deadline(t), &pb.ListAllocationsRequest{CampaignId: "c-0"})
	if err != nil || len(list.GetBooks()) != skus || len(list.GetBooks()[999].GetAllocations()) != n {
		t.Fatalf("%d books: %v", len(list.GetBooks()), err)
	}
	if size := proto.Size(list); size <= transport.DefaultMaxMessage {
		t.Fatalf("the list has %d bytes: this test shows nothing", size)
	}
}

// plantBooks opens every book of a campaign, ten at a time.
func (r *rig) plantBooks(spec core.CampaignSpec) {
	r.t.Helper()
	const atOnce = 10
	for first := 0; first < len(spec.SKUs); first += atOnce {
		r.update(func(tx *store.Tx) error {
			cells, err := tx.Cells()
			if err != nil {
				return err
			}
			for _, sku := range spec.SKUs[first:min(first+atOnce, len(spec.SKUs))] {
				plan, err := spec.Plan(sku, cells)
				if err != nil {
					return err
				}
				key := core.BookKey{Campaign: spec.ID, SKU: sku.ID}
				book, _, err := core.NewBook(key, plan, cells)
				_, _, e1 := tx.Book(key)
				if err := errors.Join(err, e1); err != nil {
					return err
				}
				if err := tx.PutBook(book.Stamp("publish")); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// TestBoundsOfACampaign: one cell, SKU or pair too many is refused with the number
// before anything is written.
func TestBoundsOfACampaign(t *testing.T) {
	r := newRig(t)
	r.plantCells(1_001, plainName)
	r.caughtUp()
	for name, c := range map[string]struct {
		skus, cells int
		rule        string
	}{
		"cells": {1, 1_001, "must list 1 to 1000 cells, not 1001"},
		"SKUs":  {1_001, 1, "must list 1 to 1000 SKUs, not 1001"},
		"pairs": {101, 1_000, "a campaign may have at most 100000 (cell, SKU) pairs, not 101000"},
	} {
		_, err := r.as(access.CampaignManager).Campaigns.CreateCampaign(testkit.Deadline(t), &pb.CreateCampaignRequest{Yaml: wideYAML("c", c.skus, c.cells), OperationId: "create"})
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error()+fmt.Sprint(status.Convert(err).Details()), c.rule) {
			t.Errorf("%s: %v, want %q", name, err, c.rule)
		}
		if _, known := r.view.Snapshot().Campaign("c"); known {
			t.Errorf("%s: the campaign was written", name)
		}
	}
	// At the bounds it is taken, and the next repeats it.
	if _, err := r.as(access.CampaignManager).Campaigns.CreateCampaign(testkit.Deadline(t), &pb.CreateCampaignRequest{Yaml: wideYAML("c", 100, 1_000), OperationId: "create"}); err != nil {
		t.Errorf("100,000 pairs: %v", err)
	}
}

// wideYAML is campaign.yaml of skus SKUs over n cells.
func wideYAML(id string, skus, n int) string {
	head, rest, _ := strings.Cut(campaignYAML(id, n), "- sku_id: phone-x\n")
	sku, cells, _ := strings.Cut(rest, "cells:")
	var out strings.Builder
	out.WriteString(head)
	for i := range skus {
		fmt.Fprintf(&out, "- sku_id: sku-%d\n%s", i, sku)
	}
	return out.String() + "cells:" + cells
}

// TestALongJournalIsPaged: 10,000 records are read page by page, each once and newest
// first; a page costs what it holds, and a filter that nothing matches ends.
func TestALongJournalIsPaged(t *testing.T) {
	const n, atOnce = 10_000, 50
	r := newRig(t)
	key := core.BookKey{Campaign: "c", SKU: "s"}
	r.update(func(tx *store.Tx) error {
		spec := wideSpec("c", 1, 1)
		_, _, err := tx.Campaign("c")
		return errors.Join(err, tx.PutCampaign(core.Campaign{Spec: spec, State: core.CampaignPublished, Version: 3, BookedSKUs: []ids.SKUID{spec.SKUs[0].ID}}))
	})
	for first := 0; first < n; first += atOnce {
		r.update(func(tx *store.Tx) error {
			for i := first; i < first+atOnce; i++ {
				id := fmt.Sprintf("r-%05d", i)
				record := core.Record{ID: id, Key: key, BookVersion: int64(i + 1), At: time.Now(), Actor: "me", Adjustments: []core.Adjustment{{
					ID: id, Key: key, Cell: "cell-1", Kind: core.KindGrant, Units: quantity.Must(1), State: core.StateDone, Step: core.Step{FenceVersion: 1, Number: int64(i + 1)},
					Actor: "me", CreatedAt: time.Now(),
				}}}
				_, _, err := tx.Record(id)
				if err := errors.Join(err, tx.PutRecord(record)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	r.caughtUp()
	viewer := r.as(access.Viewer).Quota
	seen, token := map[string]bool{}, ""
	for pages := 0; ; pages++ {
		page, err := viewer.ListAdjustments(testkit.Deadline(t), &pb.ListAdjustmentsRequest{CampaignId: "c", PageSize: 1000, PageToken: token})
		if err != nil || len(page.GetAdjustments()) > 1000 || pages > n/1000 {
			t.Fatalf("page %d of %d: %v", pages, len(page.GetAdjustments()), err)
		}
		for _, a := range page.GetAdjustments() {
			if seen[a.GetAdjustmentId()] {
				t.Fatalf("%s came twice", a.GetAdjustmentId())
			}
			seen[a.GetAdjustmentId()] = true
		}
		if token = page.GetNextPageToken(); token == "" {
			break
		}
	}
	if len(seen) != n {
		t.Fatalf("%d of %d adjustments", len(seen), n)
	}
	none, err := viewer.ListAdjustments(testkit.Deadline(t), &pb.ListAdjustmentsRequest{CampaignId: "c", CellId: "nobody", PageSize: 1000})
	if err != nil || len(none.GetAdjustments()) != 0 || none.GetNextPageToken() != "" {
		t.Fatalf("of nobody: %d, %v", len(none.GetAdjustments()), err)
	}
}
