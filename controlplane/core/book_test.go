package core_test

import (
	"errors"
	"fmt"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
)

var key = core.BookKey{Campaign: "double-eleven", SKU: "phone-x"}

func cell(id string, state core.CellState, fence int64) core.Cell {
	return core.Cell{Spec: core.CellSpec{ID: ids.CellID(id), Weight: 1}, State: state, Version: fence, FenceVersion: fence, InstanceGroup: "a"}
}

func four(state core.CellState) map[ids.CellID]core.Cell {
	out := map[ids.CellID]core.Cell{}
	for i := range 4 {
		c := cell(fmt.Sprintf("cell-%d", i+1), state, 1)
		out[c.Spec.ID] = c
	}
	return out
}

// tester is what *testing.T and *rapid.T share.
type tester interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

func demoPlan(t tester) allocator.Plan {
	t.Helper()
	var shares []allocator.Share
	for i := range 4 {
		shares = append(shares, allocator.Share{Cell: fmt.Sprintf("cell-%d", i+1)})
	}
	plan, err := allocator.Split(allocator.Request{Limit: quantity.Must(10_000), Reserve: quantity.Must(400), Policy: allocator.Equal, Cells: shares})
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func demoBook(t tester) core.Book {
	t.Helper()
	b, steps, err := core.NewBook(key, demoPlan(t), four(core.CellActive))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range steps {
		if s != (core.Step{FenceVersion: 1, Number: 1}) {
			t.Fatalf("first grants have step %v, want number 1 of fence version 1", s)
		}
	}
	return b.Stamp("publish.double-eleven.phone-x")
}

// 4 × 2,400 and 400 kept.
func TestNewBookIsTheDemos(t *testing.T) {
	b := demoBook(t)
	if b.Reserve.Int64() != 400 || b.Allocated() != 9_600 || b.Version != 1 {
		t.Fatalf("reserve %s, allocated %d, version %d", b.Reserve, b.Allocated(), b.Version)
	}
	a, ok := b.Allocation("cell-3")
	if !ok || a.Granted.Int64() != 2_400 || a.FirstGrant.Int64() != 2_400 || a.LastNumber != 1 {
		t.Fatalf("allocation of cell-3: %+v, %v", a, ok)
	}
	if _, ok := b.Allocation("cell-9"); ok {
		t.Fatal("a cell that is not in the book has an allocation")
	}
}

func TestGrantRefuses(t *testing.T) {
	b := demoBook(t)
	final := b
	final.Final = true
	settled := b
	settled.Settled = true
	proved := cell("cell-1", core.CellActive, 3)
	proved.ProofID = "cell-1/2"
	ahead, err := b.Rebase(cell("cell-1", core.CellActive, 5))
	if err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		name  string
		book  core.Book
		cell  core.Cell
		units int64
		want  error
	}{
		{"more than the reserve", b, cell("cell-1", core.CellActive, 1), 401, core.ErrReserveShort},
		{"nothing", b, cell("cell-1", core.CellActive, 1), 0, rpcstatus.ErrInvalidArgument},
		{"final", final, cell("cell-1", core.CellActive, 1), 1, core.ErrFinal},
		{"settled", settled, cell("cell-1", core.CellActive, 1), 1, core.ErrSettled},
		{"fence not booked", b, proved, 1, core.ErrNotReclaimed},
		{"older fence version than the book has seen", ahead, cell("cell-1", core.CellActive, 4), 1, core.ErrStaleCell},
	}
	for _, s := range core.CellStates() {
		if s != core.CellActive {
			cases = append(cases, struct {
				name  string
				book  core.Book
				cell  core.Cell
				units int64
				want  error
			}{"cell is " + s.String(), b, cell("cell-1", s, 1), 1, core.ErrCellState})
		}
	}
	for _, c := range cases {
		before := c.book.Reserve
		got, _, err := c.book.Grant(c.cell, quantity.Must(c.units))
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		if !reflect.DeepEqual(got, core.Book{}) || c.book.Reserve != before {
			t.Errorf("%s: a refused grant gave or changed a book", c.name)
		}
	}
	_, _, err = b.Grant(cell("cell-1", core.CellActive, 1), quantity.Must(401))
	if facts := rpcstatus.Metadata(err); facts["reserve"] != "400" || facts["units"] != "401" {
		t.Errorf("the refusal's numbers are %v", facts)
	}
}

// Numbers start again under a higher fence version, and count on under the same.
func TestNumbersFollowTheFenceVersion(t *testing.T) {
	b := demoBook(t)
	var steps []core.Step
	for _, fence := range []int64{1, 1, 3, 3} {
		var step core.Step
		var err error
		if b, step, err = b.Grant(cell("cell-2", core.CellActive, fence), quantity.Must(10)); err != nil {
			t.Fatal(err)
		}
		steps = append(steps, step)
	}
	want := []core.Step{{1, 2}, {1, 3}, {3, 1}, {3, 2}}
	if !reflect.DeepEqual(steps, want) {
		t.Fatalf("steps %v, want %v", steps, want)
	}
}

func TestWrittenOffUnitsStay(t *testing.T) {
	b, err := demoBook(t).WriteOff("cell-1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.SealBack("cell-1", quantity.Must(1)); !errors.Is(err, core.ErrAllocationShort) {
		t.Fatalf("written-off units went back to the reserve: %v", err)
	}
	if a, _ := b.Allocation("cell-1"); a.Granted.Int64() != 2_400 {
		t.Fatalf("granted is %s after the write-off", a.Granted)
	}
}

// TestEveryVerbKeepsI1 drives a book with random verbs and cells of random state
// and fence version. A dumb twin, a map of units, must agree; the receiver must
// never change; numbers must be gapless per (cell, fence version).
func TestEveryVerbKeepsI1(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		book := demoBook(t)
		twin := map[string]int64{"": 400, "cell-1": 2_400, "cell-2": 2_400, "cell-3": 2_400, "cell-4": 2_400}
		next := map[string]int64{"cell-1/1": 2, "cell-2/1": 2, "cell-3/1": 2, "cell-4/1": 2}
		for i := range rapid.IntRange(1, 60).Draw(t, "verbs") {
			name := fmt.Sprintf("cell-%d", rapid.IntRange(1, 5).Draw(t, "cell"))
			units := quantity.Must(rapid.Int64Range(0, 3_000).Draw(t, "units"))
			c := cell(name, rapid.SampledFrom(core.CellStates()).Draw(t, "state"), rapid.Int64Range(1, 4).Draw(t, "fence"))
			before := book
			reserve, copied := before.Reserve, append([]core.Allocation(nil), before.Allocations...)
			after, step, err := core.Book{}, core.Step{}, error(nil)
			verb := rapid.SampledFrom([]string{"grant", "cover", "propose", "return", "void", "seal", "write off", "rebase"}).Draw(t, "verb")
			from, to := "", ""
			switch verb {
			case "grant":
				after, step, err = book.Grant(c, units)
				from, to = "", name
			case "cover":
				after, step, err = book.Cover(c, units)
				from, to = "", name
			case "propose":
				after, step, err = book.ProposeReturn(c, units)
			case "return":
				after, err = book.BookReturn(c.Spec.ID, units)
				from, to = name, ""
			case "void":
				after, err = book.VoidGrant(c.Spec.ID, units)
				from, to = name, ""
			case "seal":
				after, err = book.SealBack(c.Spec.ID, units)
				from, to = name, ""
			case "write off":
				after, err = book.WriteOff(c.Spec.ID)
			case "rebase":
				after, err = book.Rebase(c)
			}
			if before.Reserve != reserve || !reflect.DeepEqual(before.Allocations, copied) {
				t.Fatalf("%s changed its receiver", verb)
			}
			if err != nil {
				continue
			}
			if err := after.Check(); err != nil {
				t.Fatalf("after %s: %v", verb, err)
			}
			if from != to {
				twin[from] -= units.Int64()
				twin[to] += units.Int64()
			}
			if step.Number != 0 {
				place := fmt.Sprintf("%s/%d", name, step.FenceVersion)
				if want := max(next[place], 1); step.Number != want {
					t.Fatalf("%s got number %d of %s, want %d", verb, step.Number, place, want)
				}
				next[place] = step.Number + 1
			}
			book = after.Stamp(fmt.Sprint("r", i))
			for _, a := range book.Allocations {
				if twin[string(a.Cell)] != a.Granted.Int64() {
					t.Fatalf("after %s: %s is granted %s, the twin says %d", verb, a.Cell, a.Granted, twin[string(a.Cell)])
				}
			}
			if book.Reserve.Int64() != twin[""] || twin[""] < 0 {
				t.Fatalf("after %s: reserve %s, the twin says %d", verb, book.Reserve, twin[""])
			}
		}
	})
}

func TestCheckFindsWhatIsBroken(t *testing.T) {
	good := demoBook(t)
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*core.Book){
		"I1":            func(b *core.Book) { b.Reserve = quantity.Must(401) },
		"order":         func(b *core.Book) { b.Allocations[0], b.Allocations[1] = b.Allocations[1], b.Allocations[0] },
		"twice":         func(b *core.Book) { b.Allocations[1].Cell = "cell-1" },
		"written off":   func(b *core.Book) { b.Allocations[0].WrittenOff = quantity.Must(2_401) },
		"fence version": func(b *core.Book) { b.Allocations[0].FenceVersion = 0 },
		"state":         func(b *core.Book) { b.Allocations[0].State = 0 },
		"limit target":  func(b *core.Book) { b.LimitTarget = quantity.Must(10_001) },
		"no key":        func(b *core.Book) { b.Key = core.BookKey{} },
	} {
		b := good.Stamp("x")
		spoil(&b)
		if err := b.Check(); !errors.Is(err, core.ErrBroken) {
			t.Errorf("%s: %v, want ErrBroken", name, err)
		}
	}
}
