package store_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
)

// TestSettleAll: as many answers as one transaction takes are booked by it, each for
// itself: what is wrong with one hinders no other, and the book is changed once.
func TestSettleAll(t *testing.T) {
	p := demo(t)
	ctx := testkit.Deadline(t)
	lease, _ := p.GrantLease(ctx, time.Minute)
	leader, err := p.TakeLead(ctx, lease, "a:1", "one")
	if err != nil {
		t.Fatal(err)
	}
	m := topUp("many", "cell-1", 1)
	m.Edit = func(book core.Book, cells map[ids.CellID]core.Cell) (core.Book, []core.Adjustment, error) {
		var out []core.Adjustment
		for i := range store.MaxAnswers {
			next, step, err := book.Grant(cells["cell-1"], quantity.Must(1))
			if err != nil {
				return book, nil, err
			}
			book = next
			out = append(out, core.Adjustment{
				ID: fmt.Sprint("a", i), Key: key, Cell: "cell-1", Kind: core.KindGrant, Units: quantity.Must(1), State: core.StateBooked, Step: step, Actor: "me", CreatedAt: time.Now(),
			})
		}
		return book, out, nil
	}
	moved, err := p.Move(ctx, m)
	if err != nil {
		t.Fatal(err)
	}
	var answers []store.Answer
	for i := range store.MaxAnswers - 1 {
		answers = append(answers, store.Answer{AdjustmentID: fmt.Sprint("a", i), Outcome: core.OutcomeVoided})
	}
	answers = append(answers, store.Answer{AdjustmentID: "nobody", Outcome: core.OutcomeApplied})
	got, err := p.SettleAll(ctx, leader, "many", answers)
	if err != nil {
		t.Fatal(err)
	}
	for i, g := range got {
		if last := i == len(got)-1; last != errors.Is(g.Err, core.ErrUnknownRecord) || last == g.Changed {
			t.Fatalf("answer %d: %+v", i, g)
		}
	}
	if b := p.book(t); b.Reserve.Int64() != 400-1 || b.Version != moved.Book.Version+1 {
		t.Fatalf("reserve %s in version %d after version %d", b.Reserve, b.Version, moved.Book.Version)
	}
	again, err := p.SettleAll(ctx, leader, "many", []store.Answer{{AdjustmentID: "a1", Outcome: core.OutcomeVoided}, {AdjustmentID: "a2", Outcome: core.OutcomeApplied}, {AdjustmentID: "a99", Outcome: core.OutcomeApplied}})
	if err != nil || again[0].Changed || again[0].Err != nil || !errors.Is(again[1].Err, core.ErrContradiction) || !again[2].Changed {
		t.Fatalf("%+v, %v", again, err)
	}
	if _, err := p.SettleAll(ctx, leader, "many", append(answers, answers...)); !errors.Is(err, core.ErrTooLarge) {
		t.Fatalf("too many at once: %v", err)
	}
}
