package quota_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/testkit"
)

// K29, with its numbers: limit 100, 40 sold, 20 reserved, reserve 10.
func TestK29LowerTheLimit(t *testing.T) {
	sells := func(t *testing.T) *rig {
		r := newRig(t)
		r.sells(200, 100, 50, 40)
		r.shards["cell-1"].sell(40)
		r.shards["cell-2"].sell(20)
		return r
	}
	t.Run("95 comes from the reserve, at once", func(t *testing.T) {
		r := sells(t)
		r.setLimit("l", 95)
		r.has(95, 5, 50, 40)
		if op := r.settle("l"); op.State != core.OperationDone || op.Detail != "sale_limit is 95" {
			t.Errorf("%s: %s", op.State, op.Detail)
		}
		if r.stock() != 95 {
			t.Errorf("the physical stock holds a limit of %d", r.stock())
		}
	})
	t.Run("70 is pending until cells return their unused units", func(t *testing.T) {
		r := sells(t)
		r.setLimit("l", 70)
		r.has(90, 0, 50, 40) // the reserve at once
		if err := r.step(); err != nil {
			t.Fatal(err)
		}
		if op := r.op("l"); op.State != core.OperationRunning || r.book().LimitTarget != q(70) {
			t.Fatalf("%+v, target %s", op, r.book().LimitTarget)
		}
		if op := r.settle("l"); op.State != core.OperationDone || op.Detail != "sale_limit is 70" {
			t.Errorf("%s: %s", op.State, op.Detail)
		}
		b := r.book()
		r.has(70, 0)
		if !b.LimitTarget.IsZero() || b.Allocated() != 70 || r.stock() != 70 {
			t.Errorf("target %s, allocated %d, stock holds %d", b.LimitTarget, b.Allocated(), r.stock())
		}
	})
	t.Run("50 is refused with the floor of 60", func(t *testing.T) {
		r := sells(t)
		_, _, err := r.intent.SetSaleLimit(testkit.Deadline(t), who, r.limit("l", 50), false)
		if !errors.Is(err, core.ErrBelowFloor) || rpcstatus.Metadata(err)["floor"] != "60" {
			t.Errorf("%v", err)
		}
		r.has(100, 10, 50, 40)
	})
	t.Run("two changes with the same expected version: one conflict", func(t *testing.T) {
		r := sells(t)
		version := r.book().Version
		errs := make([]error, 2)
		var both sync.WaitGroup
		for i := range errs {
			change := r.limit(fmt.Sprint("l", i), 90+int64(i))
			change.ExpectedVersion = version
			both.Go(func() { _, _, errs[i] = r.intent.SetSaleLimit(testkit.Deadline(t), who, change, false) })
		}
		both.Wait()
		if (errs[0] == nil) == (errs[1] == nil) || !errors.Is(errors.Join(errs...), core.ErrVersion) {
			t.Errorf("%v", errs)
		}
	})
}

// A lowering that meets its floor on the way ends there and names it: a customer buys what was asked for.
func TestLoweringEndsAtItsFloor(t *testing.T) {
	r := newRig(t)
	r.sells(200, 100, 50, 40)
	r.shards["cell-1"].sell(40)
	r.setLimit("l", 60)
	if err := r.step(); err != nil { // asks cells 1 and 2
		t.Fatal(err)
	}
	r.shards["cell-2"].sell(35)
	op := r.settle("l")
	b := r.book()
	if op.State != core.OperationDone || b.SaleLimit.Int64() < 75 || !b.LimitTarget.IsZero() || !b.Reserve.IsZero() {
		t.Fatalf("%+v, %+v", op, b)
	}
	for _, words := range []string{"not 60", fmt.Sprintf("sale_limit is %s", b.SaleLimit), "the floor is 75"} {
		if !strings.Contains(op.Detail, words) {
			t.Errorf("it says %q, without %q", op.Detail, words)
		}
	}
	if r.stock() != b.SaleLimit.Int64() {
		t.Errorf("the stock holds %d, the limit is %s", r.stock(), b.SaleLimit)
	}
	r.topUpRefusedFor(core.ErrReserveShort) // and no longer because of a lowering
}

func (r *rig) topUpRefusedFor(want error) {
	r.t.Helper()
	_, err := r.intent.TopUp(testkit.Deadline(r.t), who, topUpOf("x", 1, 1), false)
	if !errors.Is(err, want) {
		r.t.Errorf("a top-up: %v, want %v", err, want)
	}
}

// A cell that cannot be asked may have units: the lowering waits for it, and says so.
func TestLoweringWaitsForACellThatCannotBeAsked(t *testing.T) {
	r := newRig(t)
	r.sells(200, 100, 50, 40)
	r.shards["cell-1"].sell(50)
	r.shards["cell-2"].gone = true
	r.setLimit("l", 70)
	for range 3 {
		if err := r.step(); err != nil {
			t.Fatal(err)
		}
		r.answer()
	}
	if op := r.op("l"); op.State != core.OperationRunning || !strings.Contains(op.Detail, "cell-2 cannot be asked") {
		t.Fatalf("%+v", op)
	}
	r.topUpRefusedFor(core.ErrLowering)
	r.shards["cell-2"].gone = false
	if op := r.settle("l"); op.State != core.OperationDone {
		t.Errorf("%+v", op)
	}
	r.has(70, 0, 50, 20)
}

// A raise adds to the reserve, within the stock, and cancels a lowering, whose operation says so.
func TestRaise(t *testing.T) {
	r := newRig(t)
	r.sells(120, 100, 50, 40)
	r.shards["cell-1"].silent, r.shards["cell-2"].silent = true, true
	r.setLimit("low", 70)
	if err := r.step(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.intent.SetSaleLimit(testkit.Deadline(t), who, r.limit("high", 121), false); !errors.Is(err, core.ErrStockShort) {
		t.Errorf("above the physical stock: %v", err)
	}
	if op := r.setLimit("high", 120); op.State != core.OperationRunning {
		t.Errorf("acknowledged before a shard recorded it: %+v", op)
	}
	r.has(120, 30, 50, 40)
	if op := r.op("low"); op.State != core.OperationAborted || !strings.Contains(op.Detail, "high") {
		t.Errorf("the lowering: %+v", op)
	}
	if err := r.step(); err != nil {
		t.Fatal(err)
	}
	if op := r.op("high"); op.State != core.OperationRunning || !strings.Contains(op.Detail, "no shard has recorded") {
		t.Errorf("%+v", op)
	}
	if op := r.settle("high"); op.State != core.OperationDone || r.stock() != 120 {
		t.Errorf("%+v, stock holds %d", op, r.stock())
	}
	// The returns that were asked for come back all the same, under their own ids.
	r.shards["cell-1"].silent, r.shards["cell-2"].silent = false, false
	for r.answer() > 0 {
	}
	r.has(120, 50)
}

// Nobody holds units: the change is acknowledged at once.
func TestALimitThatNobodyHasToRecord(t *testing.T) {
	r := newRig(t)
	r.sells(200, 100, 0, 0)
	r.setLimit("l", 110)
	if err := r.step(); err != nil {
		t.Fatal(err)
	}
	if op := r.op("l"); op.State != core.OperationDone {
		t.Errorf("%+v", op)
	}
	r.has(110, 110, 0, 0)
}

// Neither after the close nor on a draft; and a lowering that is under way ends with the sale.
func TestLimitsEndWithTheSale(t *testing.T) {
	r := newRig(t)
	r.sells(200, 100, 50, 40)
	r.shards["cell-1"].silent, r.shards["cell-2"].silent = true, true
	r.setLimit("l", 70)
	if err := r.step(); err != nil {
		t.Fatal(err)
	}
	r.closes()
	if op := r.settle("l"); op.State != core.OperationDone || !strings.Contains(op.Detail, "CLOSED") {
		t.Errorf("%+v", op)
	}
	if _, _, err := r.intent.SetSaleLimit(testkit.Deadline(t), who, r.limit("l2", 110), false); !errors.Is(err, core.ErrCampaignState) {
		t.Errorf("after the close: %v", err)
	}
}

// A lowering that an older program left open on a settled book ends, and writes nothing into an account that
// was taken: neither the book, nor the stock, in which the campaign holds no limit any more.
func TestALoweringOnASettledBookEnds(t *testing.T) {
	r := newRig(t)
	r.sells(200, 100, 50, 40)
	r.shards["cell-1"].silent, r.shards["cell-2"].silent = true, true
	r.setLimit("l", 70)
	if err := r.step(); err != nil {
		t.Fatal(err)
	}
	r.closes()
	_, err := r.store.Move(testkit.Deadline(t), store.Move{
		RecordID: "account", Key: key, Actor: "me", Method: "test", Parameters: "account",
		Also: func(tx *store.Tx) error {
			s, _, err := tx.Stock(key.SKU)
			s, _, _ = s.Settle(key.Campaign, q(0))
			return errors.Join(err, tx.PutStock(s))
		},
		Edit: func(b core.Book, _ map[ids.CellID]core.Cell) (core.Book, []core.Adjustment, error) {
			b, err := b.Settle()
			return b, nil, err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	before := r.book()
	if op := r.settle("l"); op.State != core.OperationDone || !strings.Contains(op.Detail, "sale_limit is 90") {
		t.Errorf("%+v", op)
	}
	if after := r.book(); after.Version != before.Version {
		t.Errorf("a settled book was changed: %+v", after)
	}
	if _, err := before.EndLowering(); !errors.Is(err, core.ErrSettled) {
		t.Errorf("EndLowering of a settled book: %v", err)
	}
}

// A leader that dies between any two steps of a lowering is followed by one that does what is left, once.
func TestLoweringSurvivesItsLeader(t *testing.T) {
	for cut := range 8 {
		t.Run(fmt.Sprint("before step ", cut), func(t *testing.T) {
			r := newRig(t)
			r.sells(200, 100, 50, 40)
			r.shards["cell-1"].sell(20)
			r.setLimit("l", 65)
			for i := range 8 {
				if i == cut {
					r.lead()
				}
				if i%2 == 0 {
					_ = r.step()
				} else {
					r.answer()
				}
			}
			if op := r.settle("l"); op.State != core.OperationDone || op.Detail != "sale_limit is 65" {
				t.Fatalf("%+v", op)
			}
			r.has(65, 0)
			if n := r.book().Allocated(); n != 65 {
				t.Errorf("allocated %d", n)
			}
		})
	}
}
