package fencing

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
)

var (
	phone = SKU{Campaign: "double-eleven", SKU: "phone-x"}
	watch = SKU{Campaign: "double-eleven", SKU: "watch-y"}
)

// reclaimIn gives a legal reclaim in a state: fence 2, restore 3, SKU phone
// still to be booked where one can be.
func reclaimIn(s ReclaimState) Reclaim {
	r := Reclaim{Cell: "cell-1", State: s, Version: 2}
	if s >= FenceProven {
		r.Evidence = StoreFence
	}
	if s >= RestoreRunning {
		r.Restored = 3
	}
	if s == FenceProven || s == Reclaiming {
		r.Pending = []SKU{phone}
	}
	return r
}

func passing(s ReclaimState, k ReclaimEventKind) ReclaimEvent {
	e := ReclaimEvent{Kind: k, Version: 2, SKUs: []SKU{phone}, Attestation: permissive(LossAttested).Attestation}
	if k == ShardSettling || k == ShardActive {
		e.Version = 3
	}
	return e
}

func TestEveryCellOfTheReclaimTableIsFilled(t *testing.T) {
	for _, s := range ReclaimStates() {
		for _, e := range ReclaimEventKinds() {
			rule := reclaimTable[s].on[e]
			refused := rule.kind == rejects || rule.kind == impossible
			switch {
			case rule.kind == unfilled:
				t.Errorf("%s, %s: not filled", s, e)
			case refused != (rule.why != nil) || (rule.kind == impossible) != errors.Is(rule.why, ErrImpossible):
				t.Errorf("%s, %s: a refusal and its reason belong together", s, e)
			case (rule.kind == moves) != rule.next.valid():
				t.Errorf("%s, %s: a move and its next state belong together", s, e)
			}
		}
	}
}

func TestStepReclaimVisitsEveryCell(t *testing.T) {
	for _, s := range ReclaimStates() {
		for _, k := range ReclaimEventKinds() {
			before := reclaimIn(s)
			after, due, err := StepReclaim(before, passing(s, k))
			rule := reclaimTable[s].on[k]
			switch rule.kind {
			case rejects, impossible:
				var refused *TransitionError
				if !errors.Is(err, ErrTransition) || !errors.Is(err, rule.why) || !errors.As(err, &refused) {
					t.Errorf("%s, %s: %v, want %v", s, k, err, rule.why)
				} else if refused.From != s.String() || refused.Event != k.String() || refused.Machine != "reclaim" {
					t.Errorf("%s, %s: the error names %+v", s, k, refused)
				}
				continue
			case noOp:
				if err != nil || !reflect.DeepEqual(after, before) {
					t.Errorf("%s, %s: %+v, %v, want no change", s, k, after, err)
				}
			case wishes:
				if err != nil || after.State != s || after.Wish == (Wish{}) {
					t.Errorf("%s, %s: %+v, %v, want a wish", s, k, after, err)
				}
			case moves:
				if err != nil || after.State < rule.next {
					t.Errorf("%s, %s: %s, %v, want at least %s", s, k, after.State, err, rule.next)
				}
			}
			if !reflect.DeepEqual(due, after.Due()) {
				t.Errorf("%s, %s: the step gives %v, Due %v", s, k, due, after.Due())
			}
		}
	}
}

func TestEveryReclaimStateIsReachedAndGoesOn(t *testing.T) {
	reachFrom := func(from ReclaimState) []ReclaimState {
		seen := []ReclaimState{from}
		for i := 0; i < len(seen); i++ {
			next := []ReclaimState{}
			for _, k := range ReclaimEventKinds() {
				if rule := reclaimTable[seen[i]].on[k]; rule.kind == moves {
					next = append(next, rule.next)
				}
			}
			if seen[i] == Reclaiming {
				next = append(next, Reclaimed) // settle, with the last SKU
			}
			for _, s := range next {
				if !slices.Contains(seen, s) {
					seen = append(seen, s)
				}
			}
		}
		return seen
	}
	for _, s := range ReclaimStates() {
		if !slices.Contains(reachFrom(FenceRequested), s) {
			t.Errorf("%s is never reached", s)
		}
		if !slices.Contains(reachFrom(s), ActiveAgain) {
			t.Errorf("%s never sells again", s)
		}
		if s.Terminal() != (len(reachFrom(s)) == 1) {
			t.Errorf("%s: Terminal is %v, it leads to %v", s, s.Terminal(), reachFrom(s))
		}
	}
}

// step is a play's line: an event, the state it leads to and what is owed then.
type step struct {
	event ReclaimEvent
	state ReclaimState
	owes  string
}

func play(t *testing.T, r Reclaim, steps []step) Reclaim {
	t.Helper()
	for i, s := range steps {
		next, due, err := StepReclaim(r, s.event)
		if err != nil {
			t.Fatalf("line %d, %s: %v", i+1, s.event.Kind, err)
		}
		var owed []string
		for _, e := range due {
			text := e.Kind.String() + "@" + e.Version.String()
			if e.SKU != (SKU{}) {
				text += ":" + e.SKU.SKU
			}
			owed = append(owed, text)
		}
		if next.State != s.state || strings.Join(owed, " ") != s.owes {
			t.Fatalf("line %d, %s: %s owes %q, want %s and %q", i+1, s.event.Kind, next.State, strings.Join(owed, " "), s.state, s.owes)
		}
		r = next
	}
	return r
}

// `cell fence cell-1 --reclaim --top-up`, then `cell restore cell-1`.
func TestPlayFenceReclaimTopUpRestore(t *testing.T) {
	both := []SKU{watch, phone}
	r := Reclaim{Cell: "cell-1", State: FenceRequested, Version: 2}
	play(t, r, []step{
		{ReclaimEvent{Kind: BeginReclaim}, FenceRequested, "WriteFencing@2"},
		{ReclaimEvent{Kind: BeginTopUp}, FenceRequested, "WriteFencing@2"},
		{ReclaimEvent{Kind: FencingWritten, Version: 2}, FenceRunning, "RunStoreFence@2 StoreProof@2"},
		// the shard does not answer: nothing is freed, the same again
		{ReclaimEvent{Kind: StepFailed}, FenceRunning, "RunStoreFence@2 StoreProof@2"},
		{ReclaimEvent{Kind: ProofStored, Version: 2, SKUs: both}, Reclaiming, "BookReclaim@2:phone-x BookReclaim@2:watch-y"},
		{ReclaimEvent{Kind: SKUBooked, Version: 2, SKUs: []SKU{watch}}, Reclaiming, "BookReclaim@2:phone-x"},
		// the driver crashed before it knew, and books again
		{ReclaimEvent{Kind: SKUBooked, Version: 2, SKUs: []SKU{watch}}, Reclaiming, "BookReclaim@2:phone-x"},
		{ReclaimEvent{Kind: SKUBooked, Version: 2, SKUs: []SKU{phone}}, Reclaimed, "TopUpOthers@2"},
		{ReclaimEvent{Kind: ToppedUp, Version: 2}, Reclaimed, ""},
		{ReclaimEvent{Kind: BeginRestore}, RestoreRunning, "WriteRestoring@3 RunRestore@3"},
		{ReclaimEvent{Kind: ShardSettling, Version: 3}, SettleOnly, "AwaitSettled@3 RunActivate@3 WriteActive@3"},
		{ReclaimEvent{Kind: ShardActive, Version: 3}, ActiveAgain, ""},
	})
}

// A restore without a reclaim books the proof first, and does not wait for a
// SKU whose book does not match, nor for a top-up that fails.
func TestPlayRestoreBooksFirst(t *testing.T) {
	r := reclaimIn(FenceProven)
	r.Pending = []SKU{phone, watch}
	r = play(t, r, []step{
		{ReclaimEvent{Kind: BeginTopUp}, FenceProven, ""},
		{ReclaimEvent{Kind: BeginRestore, Above: 40}, Reclaiming, "BookReclaim@2:phone-x BookReclaim@2:watch-y"},
		{ReclaimEvent{Kind: SKUWithheld, Version: 2, SKUs: []SKU{phone}}, Reclaiming, "BookReclaim@2:watch-y"},
		{ReclaimEvent{Kind: SKUBooked, Version: 2, SKUs: []SKU{watch}}, RestoreRunning, "WriteRestoring@41 RunRestore@41 TopUpOthers@2"},
		{ReclaimEvent{Kind: StepFailed}, RestoreRunning, "WriteRestoring@41 RunRestore@41 TopUpOthers@2"},
		{ReclaimEvent{Kind: ShardSettling, Version: 41}, SettleOnly, "AwaitSettled@41 RunActivate@41 WriteActive@41 TopUpOthers@2"},
		{ReclaimEvent{Kind: ShardActive, Version: 41}, ActiveAgain, "TopUpOthers@2"},
		{ReclaimEvent{Kind: ToppedUp, Version: 2}, ActiveAgain, ""},
	})
	if !slices.Equal(r.Withheld, []SKU{phone}) {
		t.Errorf("withheld %v, want the phone", r.Withheld)
	}
}

// The shard never comes back: write-off, and no restore after it.
func TestPlayWriteOff(t *testing.T) {
	lost := ReclaimEvent{Kind: WriteOff, SKUs: []SKU{phone}, Attestation: Attestation{Reason: "burnt", Operator: "ann", Approver: "bob"}}
	r := reclaimIn(FenceRunning)
	r.Wish = Wish{Reclaim: true, TopUp: true}
	r = play(t, r, []step{
		{ReclaimEvent{Kind: StepFailed}, FenceRunning, "RunStoreFence@2 StoreProof@2"},
		{lost, Reclaiming, "RecordWriteOff@2 BookWriteOff@2:phone-x"},
		{lost, Reclaiming, "RecordWriteOff@2 BookWriteOff@2:phone-x"},
		{ReclaimEvent{Kind: SKUBooked, Version: 2, SKUs: []SKU{phone}}, Reclaimed, ""},
		{lost, Reclaimed, ""},
	})
	for _, k := range []ReclaimEventKind{BeginRestore, BeginTopUp} {
		if _, _, err := StepReclaim(r, ReclaimEvent{Kind: k}); !errors.Is(err, ErrLost) {
			t.Errorf("%s after a write-off: %v, want ErrLost", k, err)
		}
	}
}

// The shard dies after it was reclaimed: what it sold is written off, and a SKU
// that was withheld is tried again on command.
func TestPlayTheShardDiesAfterItsFence(t *testing.T) {
	r := reclaimIn(Reclaimed)
	r.Withheld = []SKU{watch}
	play(t, r, []step{
		{ReclaimEvent{Kind: BeginReclaim}, Reclaiming, "BookReclaim@2:watch-y"},
		{ReclaimEvent{Kind: SKUWithheld, Version: 2, SKUs: []SKU{watch}}, Reclaimed, ""},
		{
			ReclaimEvent{Kind: WriteOff, SKUs: []SKU{watch, phone, watch}, Attestation: Attestation{Reason: "r", Operator: "a", Approver: "b"}},
			Reclaiming, "RecordWriteOff@2 BookWriteOff@2:phone-x BookWriteOff@2:watch-y",
		},
	})
}

func TestReclaimOfACellThatHeldNothing(t *testing.T) {
	r := reclaimIn(FenceRunning)
	r.Wish.Reclaim = true
	play(t, r, []step{{ReclaimEvent{Kind: ProofStored, Version: 2}, Reclaimed, ""}})
	play(t, reclaimIn(Reclaimed), []step{{ReclaimEvent{Kind: BeginReclaim}, Reclaimed, ""}})
}

func TestReclaimGuards(t *testing.T) {
	cases := []struct {
		name  string
		state ReclaimState
		event ReclaimEvent
		want  error
	}{
		{"FENCING of another version", FenceRequested, ReclaimEvent{Kind: FencingWritten, Version: 1}, ErrStaleVersion},
		{"proof of another version", FenceRunning, ReclaimEvent{Kind: ProofStored, Version: 3}, ErrStaleVersion},
		{"booked for another version", Reclaiming, ReclaimEvent{Kind: SKUBooked, Version: 1, SKUs: []SKU{phone}}, ErrStaleVersion},
		{"booked without SKU", Reclaiming, ReclaimEvent{Kind: SKUBooked, Version: 2}, ErrOneSKU},
		{"withheld with two SKUs", Reclaiming, ReclaimEvent{Kind: SKUWithheld, Version: 2, SKUs: []SKU{phone, watch}}, ErrOneSKU},
		{"topped up for another version", Reclaimed, ReclaimEvent{Kind: ToppedUp, Version: 3}, ErrStaleVersion},
		{"settling at the fence's version", RestoreRunning, ReclaimEvent{Kind: ShardSettling, Version: 2}, ErrStaleVersion},
		{"active at the fence's version", SettleOnly, ReclaimEvent{Kind: ShardActive, Version: 2}, ErrStaleVersion},
		{"write-off by one", FenceRunning, ReclaimEvent{Kind: WriteOff, Attestation: Attestation{Reason: "r", Operator: "a", Approver: "a"}}, ErrAttestation},
		{"no event", FenceRunning, ReclaimEvent{}, ErrUnknownEvent},
		{"event 99", FenceRunning, ReclaimEvent{Kind: 99}, ErrUnknownEvent},
	}
	for _, c := range cases {
		if _, _, err := StepReclaim(reclaimIn(c.state), c.event); !errors.Is(err, c.want) || !errors.Is(err, ErrTransition) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	last := reclaimIn(Reclaimed)
	last.Version = MaxVersion
	if _, _, err := StepReclaim(last, ReclaimEvent{Kind: BeginRestore}); !errors.Is(err, ErrVersion) {
		t.Errorf("no version left: %v, want ErrVersion", err)
	}
}

func TestStepReclaimRefusesABrokenReclaim(t *testing.T) {
	breaks := map[string]func(*Reclaim){
		"no state":                    func(r *Reclaim) { r.State = 0 },
		"no cell":                     func(r *Reclaim) { r.Cell = "" },
		"no version":                  func(r *Reclaim) { r.Version = 0 },
		"restored too early":          func(r *Reclaim) { r.Restored = 3 },
		"no evidence":                 func(r *Reclaim) { r.Evidence = 0 },
		"evidence too early":          func(r *Reclaim) { r.State = FenceRunning },
		"reclaiming nothing":          func(r *Reclaim) { r.Pending = nil },
		"pending when done":           func(r *Reclaim) { r.State = Reclaimed },
		"restoring without version":   func(r *Reclaim) { r.State, r.Pending = SettleOnly, nil },
		"restored below the fence":    func(r *Reclaim) { r.State, r.Pending, r.Restored = SettleOnly, nil, 2 },
		"restoring a lost shard":      func(r *Reclaim) { r.State, r.Pending, r.Restored, r.Evidence = SettleOnly, nil, 3, AttestedLoss },
		"less than no attempts":       func(r *Reclaim) { r.Attempts = -1 },
		"evidence of an unknown kind": func(r *Reclaim) { r.Evidence = 9 },
	}
	for name, edit := range breaks {
		r := reclaimIn(Reclaiming)
		edit(&r)
		if _, _, err := StepReclaim(r, ReclaimEvent{Kind: StepFailed}); !errors.Is(err, ErrReclaim) {
			t.Errorf("%s: %v, want ErrReclaim", name, err)
		}
	}
}

func TestAttemptsCountFailuresOfOneState(t *testing.T) {
	r := reclaimIn(FenceRunning)
	for range 3 {
		r, _, _ = StepReclaim(r, ReclaimEvent{Kind: StepFailed})
	}
	if r.Attempts != 3 {
		t.Errorf("%d attempts, want 3", r.Attempts)
	}
	r, _, err := StepReclaim(r, ReclaimEvent{Kind: ProofStored, Version: 2})
	if err != nil || r.Attempts != 0 {
		t.Errorf("%d attempts after the proof, %v, want 0", r.Attempts, err)
	}
	r = reclaimIn(Reclaiming)
	r.Attempts = 7
	if r, _, err = StepReclaim(r, ReclaimEvent{Kind: SKUBooked, Version: 2, SKUs: []SKU{phone}}); err != nil || r.Attempts != 0 {
		t.Errorf("%d attempts after the last SKU, %v, want 0", r.Attempts, err)
	}
	r.Attempts = maxAttempts
	if r, _, err = StepReclaim(r, ReclaimEvent{Kind: StepFailed}); err != nil || r.Attempts != maxAttempts {
		t.Errorf("%d attempts, %v, want no more than %d", r.Attempts, err, maxAttempts)
	}
}

func TestReclaimStateOfACell(t *testing.T) {
	cases := []struct {
		cell      CellState
		reclaimed bool
		want      ReclaimState
	}{
		{Fencing, false, FenceRunning}, {Fenced, false, FenceProven}, {Fenced, true, Reclaimed}, {Restoring, true, RestoreRunning},
	}
	for _, c := range cases {
		if got, ok := ReclaimStateOf(c.cell, c.reclaimed); !ok || got != c.want {
			t.Errorf("%s, reclaimed %v: %s, %v, want %s", c.cell, c.reclaimed, got, ok, c.want)
		}
	}
	for _, s := range []CellState{Provisioned, Active, Suspect, Draining, Regressed, Retired} {
		if got, ok := ReclaimStateOf(s, true); ok {
			t.Errorf("%s: %s, want none", s, got)
		}
	}
	for _, s := range ReclaimStates() {
		if back, ok := ParseReclaimState(s.String()); !ok || back != s {
			t.Errorf("%s reads back as %s, %v", s, back, ok)
		}
	}
	if _, ok := ParseReclaimState("DONE"); ok {
		t.Error("an unknown state was taken")
	}
}
