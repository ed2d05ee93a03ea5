package controlplane

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/cell/shard/migrate"
	"github.com/cellquota/cellquota/controlplane/client"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/testkit"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// sold is a sale of 1,000 units in a real etcd and two real shards: 300 in each, 400
// in the reserve. No process of a cell runs; what a shard commits is done in SQL.
type sold struct {
	t      *testing.T
	etcd   *testkit.EtcdCluster
	shards map[ids.CellID]*testkit.Database
}

var soldKey = core.BookKey{Campaign: "c", SKU: "s"}

func newSold(t *testing.T) *sold {
	t.Helper()
	w := &sold{t: t, etcd: testkit.Etcd(t, 1), shards: map[ids.CellID]*testkit.Database{}}
	cells := map[ids.CellID]core.Cell{}
	book := core.Book{Key: soldKey, SaleLimit: quantity.Must(1_000), Reserve: quantity.Must(400)}
	record := core.Record{ID: "publish", Key: soldKey, Actor: "me", BookVersion: 1}
	var weights []allocator.CellWeight
	for i := range 2 {
		id := ids.CellID(fmt.Sprintf("cell-%d", i+1))
		w.shards[id] = testkit.Postgres(t).Database(t, testkit.Template{Name: "sold", Setup: func(ctx context.Context, dsn string) error {
			if err := migrate.CreateRoles(ctx, dsn, migrate.Passwords{}); err != nil {
				return err
			}
			return migrate.Up(ctx, dsn)
		}})
		w.sql(id, "SELECT cellquota.install($1, 'a')", id)
		dir := t.TempDir()
		for name, role := range map[string]string{"fencer": migrate.RoleFencer, "reader": migrate.RoleReader} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(w.shards[id].As(role)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		cells[id] = core.Cell{State: core.CellActive, Version: 1, FenceVersion: 1, InstanceGroup: "a", Spec: core.CellSpec{
			ID: id, Region: "east", InstanceGroup: "a", Weight: 1, Redis: core.RedisSpec{Mode: "standalone", Addrs: []string{"127.0.0.1:1"}},
			Kafka: core.KafkaSpec{Brokers: []string{"127.0.0.1:2"}, Topic: "t", Partitions: 1, Replication: 1},
			Shard: core.ShardSpec{DSNFile: filepath.Join(dir, "app"), ReaderDSNFile: filepath.Join(dir, "reader"), FencerDSNFile: filepath.Join(dir, "fencer")},
		}}
		book.Allocations = append(book.Allocations, core.Allocation{
			Cell: id, Granted: quantity.Must(300), FirstGrant: quantity.Must(300), FenceVersion: 1, LastNumber: 1, CellVersion: 1, State: core.CellActive,
		})
		record.Adjustments = append(record.Adjustments, core.Adjustment{
			ID: "g0-" + string(id), Key: soldKey, Cell: id, Kind: core.KindGrant, Units: quantity.Must(300), State: core.StateDone, Outcome: core.OutcomeApplied, Step: core.Step{FenceVersion: 1, Number: 1},
		})
		w.apply(id, "g0-"+string(id), 1, 300)
		weights = append(weights, allocator.CellWeight{Cell: string(id), Weight: 1})
	}
	homes, err := allocator.DealBuckets(weights, allocator.Buckets)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	campaign := core.Campaign{
		State: core.CampaignPublished, Version: 2, Owner: "me", PublishedAt: now,
		Spec: core.CampaignSpec{
			ID: "c", OpenAt: now, CloseAt: now.Add(time.Hour), Mode: core.ModeDirect, Admission: core.AdmissionMirror, Scope: core.ScopeCampaign, MaxQuantity: 1,
			HoldFor: time.Minute, Ack: core.AckKafka, Refund: core.RefundNoRestock, OnLeaseLoss: core.LeaseLossContinue, Reclaim: core.ReclaimManual, Routing: core.RoutingUser,
			Permits: core.PermitRules{ClaimFrom: now, TTL: time.Minute}, Gate: core.Gate{MaxWait: time.Second}, Cells: []ids.CellID{"cell-1", "cell-2"},
			SKUs: []core.SKUSpec{{
				ID: "s", PhysicalStock: quantity.Must(1_200), SaleLimit: quantity.Must(1_000), Inventory: core.InventoryCounter, Price: core.Money{Amount: "1", Currency: "EUR"},
				Split: core.SplitRules{Policy: allocator.Equal}, TopUp: core.TopUpRules{Policy: core.AutoManual}, Rebalance: core.AutoManual,
			}},
		},
	}
	_, err = direct(t, w.etcd).Update(testkit.Deadline(t), "seed", func(tx *store.Tx) error {
		var errs []error
		for id, c := range cells {
			_, _, err := tx.Cell(id)
			errs = append(errs, err, tx.PutCell(c))
		}
		_, _, e1 := tx.Book(soldKey)
		_, _, e2 := tx.Record("publish")
		stock, _, e3 := tx.Stock("s")
		stock, _, e4 := stock.Take("s", "c", quantity.Must(1_200), quantity.Must(1_000))
		_, _, e5 := tx.Campaign("c")
		_, _, e6 := tx.Route("c")
		return errors.Join(append(errs, e1, e2, e3, e4, e5, e6, tx.PutCampaign(campaign), tx.PutBook(book.Stamp("publish")), tx.PutRecord(record), tx.PutStock(stock),
			tx.PutRoute(core.Route{Campaign: "c", Version: 1, Domains: []core.DomainRoute{{Homes: homes}}}))...)
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *sold) sql(id ids.CellID, sql string, args ...any) {
	w.t.Helper()
	if _, err := w.shards[id].Conn(w.t).Exec(testkit.Deadline(w.t), sql, args...); err != nil {
		w.t.Fatal(err)
	}
}

// apply is a grant as a shard's transaction commits it, and sell what its cell sells.
func (w *sold) apply(id ids.CellID, adjustment string, number, units int64) {
	w.t.Helper()
	w.sql(id, "INSERT INTO cellquota.stock (campaign_id, sku_id, adjustment_version, updated_at) VALUES ('c', 's', 1, now()) ON CONFLICT DO NOTHING")
	w.sql(id, "UPDATE cellquota.stock SET granted = granted + $1, available = available + $1, version = version + 1, last_number = $2, last_adjustment_id = $3", units, number, adjustment)
	w.sql(id, "INSERT INTO cellquota.adjustments (adjustment_id, campaign_id, sku_id, fence_version, number, kind, units, asked, outcome, applied_at) VALUES ($1, 'c', 's', 1, $2, 'GRANT', $3, $3, 'APPLIED', now())", adjustment, number, units)
}

func (w *sold) sell(id ids.CellID) (sold int64) {
	w.t.Helper()
	w.sql(id, "UPDATE cellquota.stock SET reserved = reserved + available, available = 0, version = version + 1")
	if err := w.shards[id].Conn(w.t).QueryRow(testkit.Deadline(w.t), "SELECT reserved + confirmed FROM cellquota.stock").Scan(&sold); err != nil {
		w.t.Fatal(err)
	}
	return sold
}

// lives keeps a process of a cell registered, so that the cell may be granted units.
func lives(t *testing.T, r *running, cell string) {
	t.Helper()
	var stream pb.CellLinkService_LinkClient
	testkit.Eventually(t, 20*time.Second, func() (err error) { // a leadership has to begin first
		if stream, err = dial(t, r, client.Options{Workload: "cell/" + cell}).CellLink.Link(t.Context()); err != nil {
			return err
		}
		_ = stream.Send(&pb.LinkRequest{Kind: &pb.LinkRequest_Hello{Hello: &pb.Hello{
			CellId: cell, InstanceId: "i-" + cell, InstanceGroup: "a", AdvertiseAddress: "127.0.0.1:9", FenceVersion: 1,
			FenceState: pb.FenceState_FENCE_STATE_ACTIVE, FenceInstanceGroup: "a", ShardIdentity: "s",
		}}})
		m, err := stream.Recv()
		if err == nil && m.GetWelcome() == nil {
			err = fmt.Errorf("hello: %v", m)
		}
		return err
	})
	go func() {
		for n := int64(1); clock.System().Sleep(t.Context(), 200*time.Millisecond) == nil; n++ {
			if stream.Send(&pb.LinkRequest{Kind: &pb.LinkRequest_KeepAlive{KeepAlive: &pb.KeepAlive{Sequence: n}}}) != nil {
				return
			}
		}
	}()
}

// between stops etcd, does something with its data, and starts it again.
func (w *sold) between(does func(dir string) error) {
	w.t.Helper()
	w.etcd.Stop(w.t, 0)
	if err := does(w.etcd.DataDir(0)); err != nil {
		w.t.Fatal(err)
	}
	w.etcd.Start(w.t, 0)
}

// etcd is restored from a backup while no control plane runs. The first one that leads
// finds it out from a shard, before a unit is granted. Two people recover it through the
// API: the shards' facts, the confirmed limit, the second person's word; then what is
// left can be granted and sold, and not one unit more. A token that was revoked after
// the backup opens nothing, neither before the recovery nor behind it.
func TestRecoveryFromABackupThroughTheAPI(t *testing.T) {
	w := newSold(t)
	people := "operators:\n"
	for _, name := range []string{"ann", "sue"} {
		digest := sha256.Sum256([]byte(name))
		people += fmt.Sprintf("- {name: %s, role: sre, token_sha256: %s}\n", name, hex.EncodeToString(digest[:]))
	}
	a, stop := replicaFor(t, w.etcd, people)
	ready(t, a)
	ctx := testkit.Deadline(t)
	ann := dial(t, a, client.Options{Token: "ann"})
	minted, err := ann.Access.CreateToken(ctx, &pb.CreateTokenRequest{Name: "tom", Role: "sre", TtlSeconds: 3600, OperationId: "mint", Reason: "r"})
	if err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	kept := filepath.Join(t.TempDir(), "backup")
	w.between(func(dir string) error { return os.CopyFS(kept, os.DirFS(dir)) })

	// The time that is lost: 350 units more for cell-1, and tom's token is revoked.
	b, stop := replicaFor(t, w.etcd, people)
	ready(t, b)
	ann = dial(t, b, client.Options{Token: "ann"})
	if _, err := ann.Access.RevokeToken(ctx, &pb.RevokeTokenRequest{TokenId: minted.GetToken().GetTokenId(), OperationId: "revoke", Reason: "he left"}); err != nil {
		t.Fatal(err)
	}
	lives(t, b, "cell-1")
	testkit.Eventually(t, 20*time.Second, func() error { // on a busy machine the cell may be SUSPECT for a moment
		_, err := ann.Quota.TopUp(ctx, &pb.TopUpRequest{CampaignId: "c", SkuId: "s", CellId: "cell-1", Units: 350, AdjustmentId: "a1", Reason: "r"})
		return err
	})
	w.apply("cell-1", "a1", 2, 350)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	w.between(func(dir string) error { return errors.Join(os.RemoveAll(dir), os.CopyFS(dir, os.DirFS(kept))) })

	c, _ := replicaFor(t, w.etcd, people)
	ann, sue := dial(t, c, client.Options{Token: "ann"}), dial(t, c, client.Options{Token: "sue"})
	tom := dial(t, c, client.Options{Token: minted.GetSecret()})
	testkit.Eventually(t, 20*time.Second, func() error {
		st, err := ann.Reports.GetStatus(ctx, &pb.GetStatusRequest{})
		if err == nil && st.GetRestored() == "" {
			err = errors.New("not RESTORED")
		}
		return err
	})
	if _, err := ann.Quota.TopUp(ctx, &pb.TopUpRequest{CampaignId: "c", SkuId: "s", CellId: "cell-2", Units: 400, AdjustmentId: "a2", Reason: "r"}); err == nil { // SUSPECT, or RESTORED
		t.Fatal("units that cell-1 has were granted to cell-2")
	}
	refused := func(when string) {
		t.Helper()
		if _, err := tom.Reports.GetStatus(ctx, &pb.GetStatusRequest{}); status.Code(err) != codes.Unauthenticated {
			t.Errorf("a revoked token %s: %v, want UNAUTHENTICATED", when, err)
		}
	}
	refused("while etcd is RESTORED")
	look, err := ann.Recovery.RecoverStore(ctx, &pb.RecoverStoreRequest{OperationId: "look", ValidateOnly: true})
	if err != nil || len(look.GetBooks()) != 1 || look.GetBooks()[0].GetFloor() != 950 || look.GetBooks()[0].GetBlockedBy() == "" || len(look.GetCells()) != 2 {
		t.Fatalf("dry run %v, %v", look, err)
	}
	limit := func(n int32) []*pb.ConfirmedLimit {
		return []*pb.ConfirmedLimit{{CampaignId: "c", SkuId: "s", SaleLimit: n}}
	}
	if _, err := ann.Recovery.RecoverStore(ctx, &pb.RecoverStoreRequest{OperationId: "much", Reason: "r", Limits: limit(1_201)}); rpcstatus.Reason(err) != "STOCK_SHORT" {
		t.Errorf("more than the warehouse has: %v", err)
	}
	if _, err := ann.Recovery.RecoverStore(ctx, &pb.RecoverStoreRequest{OperationId: "op", Reason: "the 03:00 backup", Limits: limit(1_000)}); err != nil {
		t.Fatal(err)
	}
	if _, err := ann.Access.Approve(ctx, &pb.ApproveRequest{ApprovalId: "op", Reason: "r"}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("her own: %v, want PERMISSION_DENIED", err)
	}
	if op, err := ann.Operations.Get(ctx, &pb.OperationServiceGetRequest{OperationId: "op"}); err != nil || op.GetOperation().GetState() != pb.OperationState_OPERATION_STATE_PENDING {
		t.Errorf("before the second person's word: %v, %v", op, err)
	}
	if _, err := sue.Access.Approve(ctx, &pb.ApproveRequest{ApprovalId: "op", Reason: "asked the owner"}); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 30*time.Second, func() error {
		op, err := ann.Operations.Get(ctx, &pb.OperationServiceGetRequest{OperationId: "op"})
		if err == nil && op.GetOperation().GetState() != pb.OperationState_OPERATION_STATE_DONE {
			err = fmt.Errorf("operation %v", op.GetOperation())
		}
		return err
	})
	refused("after the recovery")

	// What is left is 50, and goes out once.
	lives(t, c, "cell-1")
	lives(t, c, "cell-2")
	testkit.Eventually(t, 20*time.Second, func() error {
		_, err := ann.Quota.TopUp(ctx, &pb.TopUpRequest{CampaignId: "c", SkuId: "s", CellId: "cell-2", Units: 50, AdjustmentId: "a3", Reason: "r"})
		return err
	})
	if _, err := ann.Quota.TopUp(ctx, &pb.TopUpRequest{CampaignId: "c", SkuId: "s", CellId: "cell-1", Units: 1, AdjustmentId: "a4", Reason: "r"}); rpcstatus.Reason(err) != "RESERVE_SHORT" {
		t.Errorf("one unit more: %v, want RESERVE_SHORT", err)
	}
	w.apply("cell-2", "a3", 2, 50)
	if one, two := w.sell("cell-1"), w.sell("cell-2"); one+two != 1_000 {
		t.Errorf("I3: %d and %d units sold of 1,000", one, two)
	}
	list, err := ann.Quota.ListAllocations(ctx, &pb.ListAllocationsRequest{CampaignId: "c"})
	if err != nil || len(list.GetBooks()) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	book, sum := list.GetBooks()[0], int32(0)
	for _, al := range book.GetAllocations() {
		sum += al.GetGranted()
	}
	if sum != 1_000 || book.GetReserve() != 0 || book.GetSaleLimit() != 1_000 {
		t.Errorf("I1, I2: book %v", book)
	}
}
