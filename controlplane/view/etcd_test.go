package view_test

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
	storev1 "github.com/cellquota/cellquota/proto/cellquota/store/v1"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

func putCell(t *testing.T, s *store.Store, n int, state core.CellState, version int64) int64 {
	t.Helper()
	revision, err := s.Update(testkit.Deadline(t), "put", func(tx *store.Tx) error {
		id := ids.CellID(fmt.Sprintf("cell-%d", n))
		if _, _, err := tx.Cell(id); err != nil {
			return err
		}
		return tx.PutCell(core.Cell{
			Spec: core.CellSpec{
				ID: id, Region: "east", InstanceGroup: "a", Weight: 1, Redis: core.RedisSpec{Mode: "standalone", Addrs: []string{"127.0.0.1:1"}},
				Kafka: core.KafkaSpec{Brokers: []string{"127.0.0.1:2"}, Topic: "t", Partitions: 1, Replication: 1},
				Shard: core.ShardSpec{DSNFile: "a", ReaderDSNFile: "b", FencerDSNFile: "c"},
			}, State: state, Version: version, FenceVersion: version, InstanceGroup: "a",
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return revision
}

// K27: the replica is cut off from etcd, 200 revisions with a fence in them are
// written and compacted away, deletions of a cell, a campaign and a route too, and the replica comes back: it lists
// again, sees the fence within twice a lease, and holds what a fresh list holds.
func TestCompactionUnderTheView(t *testing.T) {
	etcd := testkit.Etcd(t, 1)
	open := func(endpoints []string) *store.Store {
		s, err := store.Open(store.Config{Endpoints: endpoints, Prefix: "/cellquota"}, store.Deps{Clock: clock.System()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	wire := newCut(t, etcd.Endpoint(0))
	behind, writer := open([]string{wire.Addr()}), open(etcd.Endpoints())
	v, err := view.New(behind, view.Deps{Clock: clock.System()})
	if err != nil {
		t.Fatal(err)
	}
	run(t, v)
	putCell(t, writer, 3, core.CellActive, 1)
	putCampaign(t, writer, "old")
	putCampaign(t, writer, "kept")
	first := putCell(t, writer, 1, core.CellActive, 1)
	if before, err := v.WaitFor(testkit.Deadline(t), first); err != nil || len(before.Campaigns()) != 2 {
		t.Fatalf("%d campaigns, %v", len(before.Campaigns()), err)
	}
	wire.Down()
	for i := range 200 {
		putCell(t, writer, 2, core.CellActive, int64(i+1))
	}
	putCell(t, writer, 1, core.CellFencing, 2)
	for _, key := range []string{"/cellquota/campaigns/old", "/cellquota/routes/old"} {
		if gone, err := etcd.Client(t).Delete(testkit.Deadline(t), key); err != nil || gone.Deleted != 1 {
			t.Fatalf("delete %s: %v, %v", key, gone, err)
		}
	}
	gone, err := etcd.Client(t).Delete(testkit.Deadline(t), "/cellquota/cells/cell-3")
	if err != nil || gone.Deleted != 1 {
		t.Fatalf("delete: %v, %v", gone, err)
	}
	head := gone.Header.Revision
	etcd.Compact(t)
	if s := v.Snapshot(); s.Revision() >= head {
		t.Fatal("the cut let changes through")
	}
	wire.Up()
	healed := time.Now()
	s, err := v.WaitFor(testkit.Deadline(t), head)
	if err != nil {
		t.Fatal(err)
	}
	if c, _ := s.Cell("cell-1"); c.State != core.CellFencing || c.FenceVersion != 2 {
		t.Fatalf("after the cut cell-1 is %s at %d", c.State, c.FenceVersion)
	}
	if took := time.Since(healed); took > 2*leaseTTL {
		t.Errorf("the fence is known %s after the cut, want within %s", took, 2*leaseTTL)
	}
	fresh, err := view.New(writer, view.Deps{Clock: clock.System()})
	if err != nil {
		t.Fatal(err)
	}
	run(t, fresh)
	other, err := fresh.WaitFor(testkit.Deadline(t), head)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := s.Cells(), other.Cells(); len(want) != 2 || !reflect.DeepEqual(got, want) {
		t.Errorf("after the cut the view holds %v, a fresh list %v", got, want)
	}
	if got, want := s.Campaigns(), other.Campaigns(); len(want) != 1 || !reflect.DeepEqual(got, want) {
		t.Errorf("after the cut the view holds the campaigns %v, a fresh list %v", got, want)
	}
	for id, want := range map[ids.CampaignID]bool{"old": false, "kept": true} {
		if _, found := s.Route(id); found != want {
			t.Errorf("the route of %s is there: %v", id, found)
		}
	}
}

// putCampaign stores a draft and a route of that name.
func putCampaign(t *testing.T, s *store.Store, id ids.CampaignID) {
	t.Helper()
	opens := time.Now().UTC()
	spec := core.CampaignSpec{
		ID: id, OpenAt: opens, CloseAt: opens.Add(time.Hour), Mode: core.ModeDirect, Admission: core.AdmissionMirror, Scope: core.ScopeSKU, MaxQuantity: 1,
		HoldFor: time.Minute, Ack: core.AckKafka, Refund: core.RefundNoRestock, OnLeaseLoss: core.LeaseLossContinue, Reclaim: core.ReclaimManual, Routing: core.RoutingUser,
		Permits: core.PermitRules{ClaimFrom: opens, TTL: time.Minute}, Gate: core.Gate{MaxWait: time.Second}, Cells: []ids.CellID{"cell-1"},
		SKUs: []core.SKUSpec{{
			ID: "s", PhysicalStock: quantity.Must(10), SaleLimit: quantity.Must(10), Inventory: core.InventoryCounter, Price: core.Money{Amount: "10", Currency: "CNY"},
			Split: core.SplitRules{Policy: allocator.Equal}, TopUp: core.TopUpRules{Policy: core.AutoManual}, Rebalance: core.AutoManual,
		}},
	}
	homes, err := allocator.DealBuckets([]allocator.CellWeight{{Cell: "cell-1", Weight: 1}}, allocator.Buckets)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Update(testkit.Deadline(t), "draft", func(tx *store.Tx) error {
		_, _, e1 := tx.Campaign(id)
		_, _, e2 := tx.Route(id)
		return errors.Join(e1, e2, tx.PutCampaign(core.Campaign{Spec: spec, State: core.CampaignDraft, Version: 1, Owner: "me"}),
			tx.PutRoute(core.Route{Campaign: id, Version: 1, Domains: []core.DomainRoute{{Homes: homes}}}))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A quiet etcd does not make the view old: it is asked how far it is.
func TestQuietIsNotSilent(t *testing.T) {
	etcd := testkit.Etcd(t, 1)
	s, err := store.Open(store.Config{Endpoints: etcd.Endpoints(), Prefix: "/cellquota"}, store.Deps{Clock: clock.System()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	v, err := view.New(s, view.Deps{Clock: clock.System()})
	if err != nil {
		t.Fatal(err)
	}
	run(t, v)
	first, err := v.WaitFor(testkit.Deadline(t), 1)
	if err != nil {
		t.Fatal(err)
	}
	other, err := etcd.Client(t).Put(testkit.Deadline(t), "/elsewhere", "x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.WaitFor(testkit.Deadline(t), other.Header.Revision); err != nil {
		t.Fatalf("progress did not bring the view from %d to %d: %v", first.Revision(), other.Header.Revision, err)
	}
	if age := v.Snapshot().Age(); age > 5*time.Second {
		t.Fatalf("age %s", age)
	}
}

// campaignBytes is a campaign without times, in some state.
func campaignBytes(t *testing.T, state pb.CampaignState) []byte {
	t.Helper()
	out, err := proto.MarshalOptions{}.MarshalAppend([]byte{1}, &storev1.Campaign{Version: 1, State: state, Spec: &pb.CampaignSpec{CampaignId: "c", Cells: []string{"cell-1"}}})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// K43 on real bytes: blank, of another schema, truncated, of unknown enum, huge.
func TestBrokenBytesAreQuarantined(t *testing.T) {
	etcd := testkit.Etcd(t, 1)
	s, err := store.Open(store.Config{Endpoints: etcd.Endpoints(), Prefix: "/cellquota"}, store.Deps{Clock: clock.System()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	putCell(t, s, 1, core.CellActive, 1)
	client, ctx := etcd.Client(t), testkit.Deadline(t)
	good, err := client.Get(ctx, "/cellquota/cells/cell-1")
	if err != nil {
		t.Fatal(err)
	}
	whole := good.Kvs[0].Value
	broken := map[string][]byte{
		"cells/blank": {}, "cells/schema": append([]byte{9}, whole[1:]...), "cells/truncated": whole[:len(whole)/2], "cells/empty": {1},
		"campaigns/zero-times": campaignBytes(t, pb.CampaignState_CAMPAIGN_STATE_PUBLISHED), "campaigns/enum": campaignBytes(t, 99),
		"campaigns/empty": {1}, "campaigns/huge": make([]byte, 1<<20+10), "books/c/s": {1}, "routes/c": {1, 0x08}, "journal/r": {1, 0xff},
		"operations/o": {1}, "proofs/cell-1/0000000000000000002": {1}, "stock/s": {1}, "instances/cell-1/x": {1},
	}
	var head int64
	for name, value := range broken {
		put, err := client.Put(ctx, "/cellquota/"+name, string(value))
		if err != nil {
			t.Fatal(err)
		}
		head = put.Header.Revision
	}
	v, err := view.New(s, view.Deps{Clock: clock.System()})
	if err != nil {
		t.Fatal(err)
	}
	run(t, v)
	snap, err := v.WaitFor(ctx, head)
	if err != nil {
		t.Fatal(err)
	}
	for name := range broken {
		if snap.Quarantined()["/cellquota/"+name] == "" {
			t.Errorf("%s is not quarantined", name)
		}
	}
	if got := snap.Cells(); len(got) != 1 || got[0].Spec.ID != "cell-1" {
		t.Errorf("cells %v", got)
	}
	cured, err := client.Put(ctx, "/cellquota/cells/blank", string(whole))
	if err != nil {
		t.Fatal(err)
	}
	if snap, err = v.WaitFor(ctx, cured.Header.Revision); err != nil || snap.Quarantined()["/cellquota/cells/blank"] != "" {
		t.Errorf("overwriting did not cure: %v", err)
	}
}
