package fencing

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

// proofOf gives a proof of cell-1, fenced from version 1 to 2, with one SKU.
func proofOf(sealed, reserved, confirmed int64, applied ...Applied) Proof {
	for i := range applied {
		applied[i].SKU = phone
	}
	return Proof{
		Cell: "cell-1", Version: 2, Identity: "71/1", Applied: applied,
		SKUs: []SKUFacts{{
			SKU: phone, SealID: "seal.cell-1.2", Sealed: sealed, Granted: reserved + confirmed, Reserved: reserved, Confirmed: confirmed,
		}},
		Positions: []Position{{Topic: "cellquota.admissions.cell-1", TopicID: "t", NextOffset: 60, LeaderEpoch: 1}},
	}
}

func bookOf(granted int64, journal ...Adjustment) Book {
	for i := range journal {
		journal[i].Version = 1
	}
	return Book{Cell: "cell-1", SKU: phone, Version: 1, Granted: granted, Journal: journal}
}

// K08: granted 50; a heartbeat said 10 used, then 25 more were sold and the cell
// died. What comes back is 50 - 35, because the shard says so.
func TestReclaimTakesTheProofNotTheHeartbeat(t *testing.T) {
	plan, err := PlanReclaim(
		bookOf(50, Adjustment{ID: "g1", Kind: KindGrant, Units: 50, State: JournalDone}),
		proofOf(15, 20, 15, Applied{ID: "g1", Version: 1, Number: 1, Kind: KindGrant, Units: 50, Outcome: OutcomeApplied}),
	)
	if err != nil {
		t.Fatal(err)
	}
	want := []Move{{Kind: MoveSeal, AdjustmentID: "seal.cell-1.2", Units: 15, Granted: -15}}
	if !reflect.DeepEqual(plan.Moves, want) || plan.ToReserve() != 15 || plan.After != 35 {
		t.Errorf("moves %v, %d to the reserve, allocation %d, want %v, 15, 35", plan.Moves, plan.ToReserve(), plan.After, want)
	}
}

// Every adjustment that a fence can catch on its way, in one play.
func TestReclaimFinishesWhatIsUnderWay(t *testing.T) {
	b := bookOf(130,
		Adjustment{ID: "first", Kind: KindGrant, Units: 100, State: JournalDone},
		Adjustment{ID: "arrived", Kind: KindGrant, Units: 10, State: JournalBooked},
		Adjustment{ID: "on-the-way", Kind: KindGrant, Units: 20, State: JournalBooked},
		Adjustment{ID: "given-back", Kind: KindReturn, Units: 5, State: JournalProposed},
		Adjustment{ID: "to-cell-2", Kind: KindReturn, Units: 7, State: JournalProposed, Taker: "cell-2"},
		Adjustment{ID: "refused", Kind: KindReturn, Units: 90, State: JournalProposed},
		Adjustment{ID: "never-sent", Kind: KindReturn, Units: 3, State: JournalProposed, Taker: "cell-2"},
		Adjustment{ID: "old", Kind: KindGrant, Units: 9, State: JournalVoided},
	)
	p := proofOf(38, 40, 20,
		Applied{ID: "first", Version: 1, Number: 1, Kind: KindGrant, Units: 100, Outcome: OutcomeApplied},
		Applied{ID: "arrived", Version: 1, Number: 2, Kind: KindGrant, Units: 10, Outcome: OutcomeApplied},
		Applied{ID: "given-back", Version: 1, Number: 4, Kind: KindReturn, Units: 5, Outcome: OutcomeApplied},
		Applied{ID: "to-cell-2", Version: 1, Number: 5, Kind: KindReturn, Units: 7, Outcome: OutcomeApplied},
		Applied{ID: "refused", Version: 1, Number: 6, Kind: KindReturn, Outcome: OutcomeRefused},
		Applied{ID: "old", Version: 1, Number: 3, Kind: KindGrant, Outcome: OutcomeVoided},
	)
	plan, err := PlanReclaim(b, p)
	if err != nil {
		t.Fatal(err)
	}
	want := []Move{
		{Kind: MoveDone, AdjustmentID: "arrived", Units: 10},
		{Kind: MoveVoid, AdjustmentID: "on-the-way", Units: 20, Granted: -20},
		{Kind: MoveBook, AdjustmentID: "given-back", Units: 5, Granted: -5},
		{Kind: MoveBook, AdjustmentID: "to-cell-2", Units: 7, Granted: -7, Taker: "cell-2"},
		{Kind: MoveVoid, AdjustmentID: "refused", Units: 90},
		{Kind: MoveVoid, AdjustmentID: "never-sent", Units: 3},
		{Kind: MoveSeal, AdjustmentID: "seal.cell-1.2", Units: 38, Granted: -38},
	}
	if !reflect.DeepEqual(plan.Moves, want) || plan.ToReserve() != 63 || plan.After != 60 {
		t.Errorf("moves\n%v\n%d to the reserve, allocation %d, want\n%v\n63, 60", plan.Moves, plan.ToReserve(), plan.After, want)
	}
}

func TestVerdictOfEveryCell(t *testing.T) {
	moved := func(kind MoveKind, granted int64) verdict { return verdict{move: kind, granted: granted} }
	none, mismatch := verdict{}, verdict{why: "mismatch"}
	voided, done := moved(MoveVoid, 0), moved(MoveDone, 0)
	cases := []struct {
		kind  AdjustmentKind
		state JournalState
		// what follows when the shard says UNKNOWN, APPLIED, REFUSED, VOIDED
		want [outcomes]verdict
	}{
		{KindGrant, JournalProposed, [outcomes]verdict{voided, moved(MoveBook, +8), voided, voided}},
		{KindGrant, JournalBooked, [outcomes]verdict{moved(MoveVoid, -8), done, moved(MoveVoid, -8), moved(MoveVoid, -8)}},
		{KindGrant, JournalDone, [outcomes]verdict{mismatch, none, none, none}},
		{KindGrant, JournalVoided, [outcomes]verdict{none, mismatch, none, none}},
		{KindReturn, JournalProposed, [outcomes]verdict{voided, moved(MoveBook, -8), voided, voided}},
		{KindReturn, JournalBooked, [outcomes]verdict{mismatch, done, mismatch, mismatch}},
		{KindReturn, JournalDone, [outcomes]verdict{mismatch, none, none, none}},
		{KindReturn, JournalVoided, [outcomes]verdict{none, mismatch, none, none}},
	}
	for _, c := range cases {
		for outcome, want := range c.want {
			var applied []Applied
			if Outcome(outcome) != OutcomeUnknown {
				a := Applied{ID: "x", Version: 1, Number: 1, Kind: c.kind, Outcome: Outcome(outcome)}
				if a.Outcome == OutcomeApplied {
					a.Units = 8
				}
				applied = append(applied, a)
			}
			// The book holds 20 more than the shard would have without the adjustment.
			plan, err := PlanReclaim(bookOf(20, Adjustment{ID: "x", Kind: c.kind, Units: 8, State: c.state}), proofOf(0, 20+want.granted, 0, applied...))
			name := c.kind.String() + " " + c.state.String() + " " + Outcome(outcome).String()
			if want == mismatch {
				if !errors.Is(err, ErrProofMismatch) || !strings.Contains(err.Error(), `"x"`) {
					t.Errorf("%s: %v, want ErrProofMismatch naming x", name, err)
				}
				continue
			}
			wantMoves := []Move{{Kind: MoveSeal, AdjustmentID: "seal.cell-1.2"}}
			if want.move != 0 {
				wantMoves = append([]Move{{Kind: want.move, AdjustmentID: "x", Units: 8, Granted: want.granted}}, wantMoves...)
			}
			if err != nil || !reflect.DeepEqual(plan.Moves, wantMoves) {
				t.Errorf("%s: %v, %v, want %v", name, plan.Moves, err, wantMoves)
			}
		}
	}
}

func TestReclaimRefusesWhatDoesNotFit(t *testing.T) {
	done := Adjustment{ID: "g1", Kind: KindGrant, Units: 50, State: JournalDone}
	said := Applied{ID: "g1", Version: 1, Number: 1, Kind: KindGrant, Units: 50, Outcome: OutcomeApplied}
	cases := []struct {
		name string
		book Book
		say  Proof
		want error
		text string
	}{
		{"a unit too many in the book", bookOf(51, done), proofOf(15, 20, 15, said), ErrProofMismatch, "allocation 51 becomes 36, but the shard holds 35 reserved or confirmed, and 0 are frozen"},
		{"a unit too few in the book", bookOf(49, done), proofOf(15, 20, 15, said), ErrProofMismatch, "allocation 49 becomes 34, but the shard holds 35"},
		{"sealed more than granted", bookOf(14, done), proofOf(15, 0, 0, said), ErrProofMismatch, "allocation 14 becomes -1"},
		{"other units", bookOf(50, done), proofOf(15, 20, 15, Applied{ID: "g1", Version: 1, Number: 1, Kind: KindGrant, Units: 49, Outcome: OutcomeApplied}), ErrProofMismatch, "a GRANT of 50 in the journal, a GRANT of 49 in the shard"},
		{"other kind", bookOf(50, done), proofOf(15, 20, 15, Applied{ID: "g1", Version: 1, Number: 1, Kind: KindReturn, Units: 50, Outcome: OutcomeApplied}), ErrProofMismatch, "a RETURN of 50 in the shard"},
		{"unknown to the journal", bookOf(50), proofOf(15, 20, 15, said), ErrProofMismatch, `"g1", which the journal does not know`},
		{"another cell", Book{Cell: "cell-2", SKU: phone, Version: 1, Granted: 50}, proofOf(15, 20, 15), ErrProofMismatch, `the proof is of cell "cell-1"`},
		{"allocation is newer", Book{Cell: "cell-1", SKU: phone, Version: 3, Granted: 50}, proofOf(15, 20, 15), ErrStaleProof, "allocation at version 3"},
		{"an adjustment is newer", Book{Cell: "cell-1", SKU: phone, Version: 2, Granted: 50, Journal: []Adjustment{{ID: "g9", Kind: KindGrant, Version: 2, State: JournalBooked}}}, proofOf(15, 20, 15), ErrStaleProof, `"g9"`},
		{"a broken proof", bookOf(50, done), Proof{}, ErrProof, ""},
		{"a broken book", Book{}, proofOf(15, 20, 15), ErrBook, ""},
	}
	for _, c := range cases {
		plan, err := PlanReclaim(c.book, c.say)
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v, want %v with %q", c.name, err, c.want, c.text)
		}
		if !reflect.DeepEqual(plan, ReclaimPlan{}) {
			t.Errorf("%s: a plan came with the error: %+v", c.name, plan)
		}
	}
}

// A SKU that the shard never heard of: its first grant did not arrive.
func TestReclaimOfASKUWithoutStockRow(t *testing.T) {
	b := bookOf(40, Adjustment{ID: "first", Kind: KindGrant, Units: 40, State: JournalBooked})
	plan, err := PlanReclaim(b, Proof{Cell: "cell-1", Version: 2})
	want := []Move{{Kind: MoveVoid, AdjustmentID: "first", Units: 40, Granted: -40}}
	if err != nil || !reflect.DeepEqual(plan.Moves, want) || plan.After != 0 {
		t.Errorf("moves %v, allocation %d, %v, want %v and 0", plan.Moves, plan.After, err, want)
	}
}

// Other SKUs of the shard are none of this SKU's business.
func TestReclaimLooksAtItsOwnSKUOnly(t *testing.T) {
	p := proofOf(15, 20, 15)
	p.SKUs = append(p.SKUs, SKUFacts{SKU: watch, SealID: "seal.watch", Sealed: 3})
	p.Applied = []Applied{{ID: "g7", SKU: watch, Version: 1, Number: 1, Kind: KindGrant, Units: 3, Outcome: OutcomeApplied}}
	plan, err := PlanReclaim(bookOf(50), p)
	if err != nil || len(plan.Moves) != 1 || plan.ToReserve() != 15 {
		t.Errorf("moves %v, %v, want the seal of 15", plan.Moves, err)
	}
}

// What an earlier fence sealed and nobody booked stays, and adjustments of lower
// versions that the proof still lists need not be known any more.
func TestReclaimAfterAnEarlierFence(t *testing.T) {
	p := proofOf(5, 20, 10,
		Applied{ID: "old", Version: 1, Number: 1, Kind: KindGrant, Units: 42, Outcome: OutcomeApplied},
		Applied{ID: "new", Version: 3, Number: 1, Kind: KindGrant, Units: 5, Outcome: OutcomeApplied},
	)
	p.Version = 4
	b := Book{
		Cell: "cell-1", SKU: phone, Version: 3, Granted: 47, Frozen: 12,
		Journal: []Adjustment{{ID: "new", Kind: KindGrant, Version: 3, Units: 5, State: JournalDone}},
	}
	plan, err := PlanReclaim(b, p)
	if err != nil || plan.After != 42 || plan.ToReserve() != 5 {
		t.Errorf("allocation %d, %d to the reserve, %v, want 42 and 5", plan.After, plan.ToReserve(), err)
	}
}

func TestWriteOffMovesNothing(t *testing.T) {
	b := bookOf(70,
		Adjustment{ID: "g1", Kind: KindGrant, Units: 60, State: JournalDone},
		Adjustment{ID: "g2", Kind: KindGrant, Units: 10, State: JournalBooked},
		Adjustment{ID: "r1", Kind: KindReturn, Units: 5, State: JournalProposed},
	)
	people := Attestation{Reason: "burnt", Operator: "ann", Approver: "bob"}
	plan, err := PlanWriteOff(b, 2, people)
	want := []Move{
		{Kind: MoveDone, AdjustmentID: "g2", Units: 10},
		{Kind: MoveVoid, AdjustmentID: "r1", Units: 5},
		{Kind: MoveWriteOff, AdjustmentID: "writeoff.cell-1.2.double-eleven.phone-x", Units: 70},
	}
	if err != nil || !reflect.DeepEqual(plan.Moves, want) || plan.After != 70 || plan.ToReserve() != 0 || plan.Evidence != AttestedLoss {
		t.Fatalf("%+v, %v, want %v", plan, err, want)
	}
	again := bookOf(70,
		Adjustment{ID: "g1", Kind: KindGrant, Units: 60, State: JournalDone}, Adjustment{ID: "g2", Kind: KindGrant, Units: 10, State: JournalDone},
		Adjustment{ID: "r1", Kind: KindReturn, Units: 5, State: JournalVoided}, Adjustment{ID: want[2].AdjustmentID, Kind: KindWriteOff, Units: 70, State: JournalDone},
	)
	if plan, err = PlanWriteOff(again, 2, people); err != nil || len(plan.Moves) != 0 {
		t.Errorf("a second write-off moves %v, %v", plan.Moves, err)
	}
	if _, err := PlanWriteOff(b, 2, Attestation{}); !errors.Is(err, ErrAttestation) {
		t.Errorf("without attestation: %v", err)
	}
	if _, err := PlanWriteOff(Book{}, 2, people); !errors.Is(err, ErrBook) {
		t.Errorf("a broken book: %v", err)
	}
	b.Version = 2
	if _, err := PlanWriteOff(b, 2, people); err != nil {
		t.Errorf("an allocation at the fence's own version: %v", err)
	}
	b.Version = 3
	if _, err := PlanWriteOff(b, 2, people); !errors.Is(err, ErrStaleProof) {
		t.Errorf("a newer allocation: %v", err)
	}
}

func TestReclaimPlanCheckFindsEachBreach(t *testing.T) {
	good := func() ReclaimPlan {
		return ReclaimPlan{
			Cell: "cell-1", SKU: phone, Version: 2, Evidence: StoreFence, Before: 50, After: 35, Sold: 33, Frozen: 2,
			Moves: []Move{{Kind: MoveVoid, AdjustmentID: "a", Units: 5, Granted: -5}, {Kind: MoveSeal, AdjustmentID: "s", Units: 10, Granted: -10}},
		}
	}
	if err := good().Check(); err != nil {
		t.Fatalf("the good plan: %v", err)
	}
	breaches := map[string]func(*ReclaimPlan){
		"more left than sold":     func(p *ReclaimPlan) { p.Sold-- },
		"less left than sold":     func(p *ReclaimPlan) { p.Sold++ },
		"frozen units taken":      func(p *ReclaimPlan) { p.Frozen = 0 },
		"moves do not lead there": func(p *ReclaimPlan) { p.Moves[0].Granted = -6 },
		"an id moves twice":       func(p *ReclaimPlan) { p.Moves[1].AdjustmentID = "a" },
		"an unnamed move":         func(p *ReclaimPlan) { p.Moves[1].AdjustmentID = "" },
		"no evidence":             func(p *ReclaimPlan) { p.Evidence = 0 },
		"a write-off that moves":  func(p *ReclaimPlan) { p.Evidence = AttestedLoss },
	}
	for name, edit := range breaches {
		p := good()
		edit(&p)
		if err := p.Check(); !errors.Is(err, ErrProofMismatch) {
			t.Errorf("%s: %v, want ErrProofMismatch", name, err)
		}
	}
}

func TestBookCheckFindsEachBreach(t *testing.T) {
	breaches := map[string]func(*Book){
		"no cell":            func(b *Book) { b.Cell = "" },
		"no campaign":        func(b *Book) { b.SKU.Campaign = "" },
		"no version":         func(b *Book) { b.Version = 0 },
		"below 0":            func(b *Book) { b.Granted = -1 },
		"above the bound":    func(b *Book) { b.Granted = MaxUnits + 1 },
		"frozen below 0":     func(b *Book) { b.Frozen = -1 },
		"frozen above all":   func(b *Book) { b.Frozen = 51 },
		"adjustment unnamed": func(b *Book) { b.Journal[0].ID = "" },
		"adjustment twice":   func(b *Book) { b.Journal = append(b.Journal, b.Journal[0]) },
		"no kind":            func(b *Book) { b.Journal[0].Kind = 0 },
		"kind unknown":       func(b *Book) { b.Journal[0].Kind = 9 },
		"no state":           func(b *Book) { b.Journal[0].State = 0 },
		"state unknown":      func(b *Book) { b.Journal[0].State = 9 },
		"units below 0":      func(b *Book) { b.Journal[0].Units = -1 },
		"units above":        func(b *Book) { b.Journal[0].Units = MaxUnits + 1 },
	}
	for name, edit := range breaches {
		b := bookOf(50, Adjustment{ID: "g", Kind: KindGrant, Units: 50, State: JournalDone})
		if err := b.Check(); err != nil {
			t.Fatalf("the good book: %v", err)
		}
		edit(&b)
		if err := b.Check(); !errors.Is(err, ErrBook) {
			t.Errorf("%s: %v, want ErrBook", name, err)
		}
	}
}
