package reclaim_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/reclaim"
	"github.com/cellquota/cellquota/fencing"
	"github.com/cellquota/cellquota/fencing/fencer"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
)

// copyTo copies the shard's database as it is now; goBack puts the copy in its place.
func (s *shard) copyTo(name string) {
	s.t.Helper()
	ctx := testkit.Deadline(s.t)
	if err := s.conn.Close(ctx); err != nil {
		s.t.Fatal(err)
	}
	admin := testkit.Postgres(s.t).Existing("postgres").Conn(s.t)
	for _, statement := range []string{
		"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = '" + s.db.Name + "'",
		"CREATE DATABASE " + name + " TEMPLATE " + s.db.Name,
	} {
		if _, err := admin.Exec(ctx, statement); err != nil {
			s.t.Fatal(err)
		}
	}
	s.t.Cleanup(func() {
		gone := context.WithoutCancel(s.t.Context())
		conn, err := pgx.Connect(gone, testkit.Postgres(s.t).Existing("postgres").DSN())
		if err == nil {
			_, err = conn.Exec(gone, "DROP DATABASE "+name+" WITH (FORCE)")
			err = errors.Join(err, conn.Close(gone))
		}
		if err != nil {
			s.t.Log(err)
		}
	})
	s.conn = s.db.Conn(s.t)
}

func (s *shard) goBack(name string) {
	s.t.Helper()
	s.db = testkit.Postgres(s.t).Existing(name)
	s.conn = s.db.Conn(s.t)
	s.reachable(true)
}

func (w *world) settled(adjustment string) {
	w.t.Helper()
	if _, err := w.store.Settle(testkit.Deadline(w.t), w.leader, adjustment, adjustment, core.OutcomeApplied); err != nil {
		w.t.Fatal(err)
	}
}

// wentBack is cell-1 after a day of work of which its shard lost the end: a copy has 20 unpaid orders and
// 10 units; since then they were closed, 6 units came, 25 went, one grant was applied and nobody told, and
// one return was never decided.
func wentBack(w *world, name string) {
	s := w.shards["cell-1"]
	s.sell(1, "old", 20, 0)
	s.copyTo(name)
	for i := range 20 {
		s.do("SELECT sale.close(1, 's', $1)", fmt.Sprintf("old%d", i))
	}
	w.grant("cell-1", "g1", 6, true)
	w.settled("g1")
	w.propose("cell-1", "r1", 25, true)
	w.settled("r1")
	w.grant("cell-1", "g2", 2, true) // applied, and the answer was lost
	w.propose("cell-1", "r2", 1, false)
	seen := fencing.Witness{
		Identity: "1/1", Version: 1, Stocks: map[fencing.SKU]fencing.Mark{{Campaign: "c", SKU: "s"}: {AdjustmentVersion: 1, LastNumber: 4, StockVersion: 44}},
		Positions: map[fencing.Partition]fencing.PositionMark{{Topic: "t", Partition: 0}: {TopicID: "id", Next: 7}},
	}
	ctx := testkit.Deadline(w.t)
	if err := w.store.RaiseWitness(ctx, w.leader, "cell-1", seen); err != nil {
		w.t.Fatal(err)
	}
	s.goBack(name)
	cell, err := w.store.Regress(ctx, w.leader, "cell-1", "stock version 21, 44 was seen")
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.view.WaitFor(ctx, cell.ModRevision+1); err != nil {
		w.t.Fatal(err)
	}
}

// known writes the campaign's row, by which a shard's witness names its stock rows.
func (s *shard) known() {
	s.do(`INSERT INTO cellquota.campaigns VALUES ('c', 1, 'PUBLISHED', now() - interval '1 hour', now() + interval '1 hour', 'SKU', interval '1 hour', '', now())`)
}

// witnessed writes down what the cell's shard shows now, as the leader does.
func (w *world) witnessed(id ids.CellID) {
	w.t.Helper()
	ctx := testkit.Deadline(w.t)
	now, err := reclaim.Files{}.Look(ctx, w.cell(id).Spec)
	if err == nil {
		err = w.store.RaiseWitness(ctx, w.leader, id, now)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// TestAFenceOfABackupProvesNothing: the cell sold 8, its database and its processes died together, and a
// backup with 3 came up at the address. Nobody said hello, so the fence is the first to look: what it would
// seal was sold. Without a recovery nobody gets a unit.
func TestAFenceOfABackupProvesNothing(t *testing.T) {
	w := newWorld(t).publish()
	s := w.shards["cell-1"]
	s.known()
	s.sell(1, "early", 3, 3)
	s.copyTo("copy_fenced")
	s.sell(1, "late", 5, 5)
	w.witnessed("cell-1")
	w.dies("cell-1")
	s.goBack("copy_fenced")
	w.fence(reclaim.FenceOrder{Cell: "cell-1", OperationID: "f1", Reclaim: true, TopUp: true})
	op := w.finish(w.driver(), "f1")
	if op.State != core.OperationFailed || !strings.Contains(op.Detail, "cell restore cell-1") || !strings.Contains(op.Detail, "stock version 7, 17 was seen") {
		t.Errorf("%s: %s", op.State, op.Detail)
	}
	if c := w.cell("cell-1"); c.State != core.CellRegressed || c.OperationID != "" {
		t.Errorf("%+v", c)
	}
	w.want(10, 30, 30, 30)
	if l := s.levels(); l.available != 27 {
		t.Errorf("the backup was sealed: %+v", l)
	}
	w.restore("r") // its way out is open
}

// TestAFenceThatWasSeenBeforeAndAfter: of a shard that lacks nothing the fence is as it was, also where its
// driver died behind the commit and the shard was seen before or behind the SEAL.
func TestAFenceThatWasSeenBeforeAndAfter(t *testing.T) {
	for _, behind := range []bool{false, true} {
		t.Run(fmt.Sprintf("seen behind the seal %v", behind), func(t *testing.T) {
			w := newWorld(t).publish()
			s := w.shards["cell-1"]
			s.known()
			s.sell(1, "u", 8, 3)
			w.witnessed("cell-1")
			w.dies("cell-1")
			w.fence(reclaim.FenceOrder{Cell: "cell-1", OperationID: "f1", Reclaim: true})
			s.do("SELECT cellquota.fence_cell('cell-1', 2, 'dead', 1000)") // and its driver died
			if behind {
				w.witnessed("cell-1")
			}
			w.done("f1")
			w.want(32, 8, 30, 30)
		})
	}
}

// TestASealIsNoSale: a fenced shard that lacks one entry shows as many as were seen, for the SEAL is one.
func TestASealIsNoSale(t *testing.T) {
	w := newWorld(t).publish()
	s := w.shards["cell-1"]
	s.known()
	s.sell(1, "u", 8, 3)
	w.dies("cell-1")
	w.fence(reclaim.FenceOrder{Cell: "cell-1", OperationID: "f1", Reclaim: true})
	s.do("SELECT cellquota.fence_cell('cell-1', 2, 'dead', 1000)")
	seen := fencing.Witness{Identity: "1/1", Version: 1, Stocks: map[fencing.SKU]fencing.Mark{{Campaign: "c", SKU: "s"}: {AdjustmentVersion: 1, LastNumber: 1, StockVersion: 13}}}
	if err := w.store.RaiseWitness(testkit.Deadline(t), w.leader, "cell-1", seen); err != nil {
		t.Fatal(err)
	}
	if op := w.finish(w.driver(), "f1"); op.State != core.OperationFailed || !strings.Contains(op.Detail, "stock version 12, 13 was seen") {
		t.Errorf("%s: %s", op.State, op.Detail)
	}
}

// TestARecoveryAsksTheShardFirst: the copy has applied a return, and only its answer was lost.
func TestARecoveryAsksTheShardFirst(t *testing.T) {
	w := newWorld(t).publish()
	s := w.shards["cell-1"]
	w.propose("cell-1", "r1", 25, true)
	s.copyTo("copy_answer")
	s.sell(1, "late", 1, 0)
	s.goBack("copy_answer")
	ctx := testkit.Deadline(t)
	cell, err := w.store.Regress(ctx, w.leader, "cell-1", "stock version 2, 3 was seen")
	if err == nil {
		_, err = w.view.WaitFor(ctx, cell.ModRevision+1)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.restore("r")
	w.done("r")
	w.want(35, 5, 30, 30)
	if l := s.levels(); l != (levels{5, 5, 0, 0}) {
		t.Errorf("shard %+v", l)
	}
	w.i1()
	if _, err := s.conn.Exec(ctx, "SELECT cellquota.recover_adjustment('cell-1', 2, 'r1', 'c', 's', 1, 2, 'RETURN', 25, 'REFUSED')"); err == nil || !strings.Contains(err.Error(), "decided otherwise") {
		t.Errorf("a contradiction was taken: %v", err)
	}
}

// readTo is what the cell's consumer does.
func (s *shard) readTo(offset int64) {
	s.do(`INSERT INTO cellquota.positions (topic, partition, topic_id, next_offset, leader_epoch, updated_at) VALUES ('t', 0, 'id', $1, 0, cellquota.now())
		ON CONFLICT (topic, partition) DO UPDATE SET next_offset = excluded.next_offset`, offset)
}

func (w *world) restore(id string) {
	w.t.Helper()
	if _, err := w.orders.Restore(testkit.Deadline(w.t), who, "cell-1", id, "", "the backup was put in its place", false); err != nil {
		w.t.Fatal(err)
	}
}

// whole is what a recovery comes to: 30 + 6 - 25 + 2 granted, and 9 of the reserve for the orders that were
// closed once and are not yet closed again.
func (w *world) whole() {
	w.t.Helper()
	s := w.shards["cell-1"]
	if got := s.levels(); got != (levels{22, 2, 20, 0}) {
		w.t.Errorf("shard %+v", got)
	}
	if got := w.granted("cell-1"); got != 22 {
		w.t.Errorf("the book allocates %d", got)
	}
	w.i1()
	if open := w.view.Snapshot().OpenRecords(); len(open) != 0 {
		w.t.Errorf("open: %+v", open)
	}
	var fence, from, broken, attempts int
	err := s.conn.QueryRow(w.t.Context(), `SELECT fence_version, messages_from,
		(SELECT count(*) FROM cellquota.stock x, LATERAL (SELECT sum(delta_available) a, sum(delta_reserved) r, count(*) n FROM cellquota.ledger l WHERE l.sku_id = x.sku_id) l
			WHERE (x.available, x.reserved, x.version) <> (l.a, l.r, l.n)),
		(SELECT count(*) FROM cellquota.payments WHERE payment_id = '*recovery' AND state = 'UNKNOWN') FROM cellquota.fence`).Scan(&fence, &from, &broken, &attempts)
	if err != nil || fence != 2 || from != 1 || broken != 0 || attempts != 20 {
		w.t.Errorf("fence version %d, messages from %d, I5 broken %d times, %d orders to be asked about, %v", fence, from, broken, attempts, err)
	}
	if c := w.cell("cell-1"); c.State != core.CellActive || c.FenceVersion != 2 || c.OperationID != "" {
		w.t.Errorf("%+v", c)
	}
}

func TestARegressedCellComesBackWhole(t *testing.T) {
	w := newWorld(t).publish()
	wentBack(w, "copy_whole")
	s := w.shards["cell-1"]
	w.restore("r")
	if c := w.cell("cell-1"); c.State != core.CellRegressed || c.FenceVersion != 2 {
		t.Fatalf("%+v", c)
	}
	d := w.driver()
	testkit.Eventually(t, wait, func() error { // as far as the consumer's part
		op, err := w.store.Operation(testkit.Deadline(t), "r")
		if err == nil && op.DoneStep("REPLAYING") && strings.Contains(op.Detail, "1 partitions") {
			return nil
		}
		return errors.Join(err, d.Step(testkit.Deadline(t), w.leader, op), fmt.Errorf("in %s: %s", op.Step, op.Detail))
	})
	if err := payAgain(s); err == nil || !strings.Contains(err.Error(), "payments wait") {
		t.Errorf("a payment during the recovery: %v", err)
	}
	fence := reclaim.FenceOrder{Cell: "cell-1", OperationID: "f", Force: true, Reclaim: true, Reason: "it hangs"}
	if _, err := w.orders.Fence(testkit.Deadline(t), who, fence, false); !errors.Is(err, core.ErrCellState) || !strings.Contains(err.Error(), "must end first") {
		t.Errorf("a fence was ordered in the middle of the recovery: %v", err)
	}
	if _, err := s.conn.Exec(t.Context(), "SELECT cellquota.fence_cell('cell-1', 3, 'it hangs', 1000)"); err == nil || !strings.Contains(err.Error(), "must end first") {
		t.Errorf("the shard was fenced in the middle of the recovery: %v", err)
	}
	s.readTo(6)
	op, _ := w.store.Operation(testkit.Deadline(t), "r")
	if err := d.Step(testkit.Deadline(t), w.leader, op); err != nil || w.cell("cell-1").State != core.CellRestoring {
		t.Errorf("it went on before the log was read: %v", err)
	}
	s.readTo(7)
	w.done("r")
	w.whole()
	written, _, err := w.store.Witness(testkit.Deadline(t), "cell-1")
	if err != nil || len(written.Stocks) != 0 || written.Version != 2 {
		t.Errorf("what was seen before the recovery is held against it: %+v %v", written, err)
	}
}

// payAgain is what a payment asks of the fence row.
func payAgain(s *shard) error {
	_, err := s.conn.Exec(s.t.Context(), "SELECT cellquota.require_fence(2, 'blue', 'PAY')")
	return err
}

// TestPaymentsWaitWhileUnitsAreMissing: with nothing in the reserve the recovery waits; closings bring the
// units, and then it goes on.
func TestPaymentsWaitWhileUnitsAreMissing(t *testing.T) {
	w := newWorld(t).publish()
	wentBack(w, "copy_missing")
	s := w.shards["cell-1"]
	w.grant("cell-2", "away", w.book().Reserve.Int64(), false)
	s.readTo(7)
	w.restore("r")
	d := w.driver()
	testkit.Eventually(t, wait, func() error {
		op, err := w.store.Operation(testkit.Deadline(t), "r")
		if err == nil && strings.Contains(op.Detail, "units of c/s are missing") {
			return nil
		}
		return errors.Join(err, d.Step(testkit.Deadline(t), w.leader, op), fmt.Errorf("in %s: %s", op.Step, op.Detail))
	})
	if err := payAgain(s); err == nil {
		t.Error("payments go on")
	}
	for i := range 20 {
		s.do("SELECT sale.close(2, 's', $1)", fmt.Sprintf("old%d", i))
	}
	w.done("r")
	if got := s.levels(); got != (levels{13, 13, 0, 0}) || w.granted("cell-1") != 13 {
		t.Errorf("shard %+v, book %d", got, w.granted("cell-1"))
	}
}

// TestHandedOverBucketsStopTheRecovery: whose orders they are cannot be told.
func TestHandedOverBucketsStopTheRecovery(t *testing.T) {
	w := newWorld(t).publish()
	wentBack(w, "copy_moved")
	if err := w.store.RaiseWitness(testkit.Deadline(t), w.leader, "cell-1", fencing.Witness{Identity: "1/1", Version: 1, Routes: map[string]int64{"c": 2}}); err != nil {
		t.Fatal(err)
	}
	w.restore("r")
	d := w.driver()
	testkit.Eventually(t, wait, func() error {
		op, err := w.store.Operation(testkit.Deadline(t), "r")
		if err == nil && strings.Contains(op.Detail, "handed over") {
			return nil
		}
		return errors.Join(err, d.Step(testkit.Deadline(t), w.leader, op), errors.New(op.Detail))
	})
	if c := w.cell("cell-1"); c.State != core.CellRegressed {
		t.Errorf("the cell is %s", c.State)
	}
}

// K22, K72: the driver of a recovery dies at each of its effects, before it or with the answer lost.
func TestARecoverysDriverMayDieAtEveryEffect(t *testing.T) {
	etcd := testkit.Etcd(t, 1)
	for _, after := range []bool{false, true} {
		for n := 1; ; n++ {
			died := false
			ok := t.Run(fmt.Sprintf("effect %d, answer lost %v", n, after), func(t *testing.T) {
				w := newWorldIn(t, etcd, false).publish()
				wentBack(w, fmt.Sprintf("copy_%d_%v", n, after))
				w.shards["cell-1"].readTo(7)
				w.restore("r")
				died = w.live("r", n, after)
				w.lead()
				w.done("r")
				w.whole()
			})
			if !ok {
				return
			}
			if !died {
				if n < 10 {
					t.Fatalf("only %d effects were found: the test looks at nothing", n-1)
				}
				break
			}
		}
	}
}

func (s mortalShard) RecoverBegin(ctx context.Context, cell string, version fencing.Version, group, reason string, to fencer.RecoverTo) error {
	return s.life.Spend(func() error {
		return s.Shard.RecoverBegin(context.WithoutCancel(ctx), cell, version, group, reason, to)
	})
}

func (s mortalShard) RecoverAdjustment(ctx context.Context, cell string, version fencing.Version, a fencing.Lost) (missing int64, err error) {
	err = s.life.Spend(func() (err error) {
		missing, err = s.Shard.RecoverAdjustment(context.WithoutCancel(ctx), cell, version, a)
		return err
	})
	return missing, err
}

func (s mortalShard) RecoverMessages(ctx context.Context, cell string, version fencing.Version) error {
	return s.life.Spend(func() error { return s.Shard.RecoverMessages(context.WithoutCancel(ctx), cell, version) })
}

func (s mortalShard) RecoverFinish(ctx context.Context, cell string, version fencing.Version) (unread int, err error) {
	err = s.life.Spend(func() (err error) {
		unread, err = s.Shard.RecoverFinish(context.WithoutCancel(ctx), cell, version)
		return err
	})
	return unread, err
}
