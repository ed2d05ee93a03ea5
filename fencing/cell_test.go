package fencing

import (
	"errors"
	"slices"
	"testing"
)

// cellIn gives a legal cell in a state, at version 7 and record 70.
func cellIn(s CellState) Cell {
	c := Cell{ID: "cell-1", State: s, Version: 7, Record: 70, Group: "blue"}
	switch s {
	case Active, Draining:
		c.Live = true
	case Fenced:
		c.Evidence = StoreFence
	}
	return c
}

// permissive gives an event that every guard lets pass.
func permissive(k CellEventKind) CellEvent {
	return CellEvent{
		Kind: k, ExpectedRecord: 70, Group: "blue", Force: true, OtherLive: 1, Above: 9, Version: 7, Empty: true,
		Attestation: Attestation{Reason: "the disk burnt", Operator: "ann", Approver: "bob"},
	}
}

func TestEveryCellOfTheCellTableIsFilled(t *testing.T) {
	for _, s := range CellStates() {
		for _, e := range CellEventKinds() {
			rule := cellTable[s][e]
			refused := rule.kind == rejects || rule.kind == impossible
			switch {
			case rule.kind == unfilled || rule.kind == wishes:
				t.Errorf("%s, %s: not filled", s, e)
			case rule.kind == moves && !rule.next.valid():
				t.Errorf("%s, %s: moves nowhere", s, e)
			case refused != (rule.why != nil):
				t.Errorf("%s, %s: a refusal and its reason belong together", s, e)
			case (rule.kind == impossible) != errors.Is(rule.why, ErrImpossible):
				t.Errorf("%s, %s: impossible is a kind of its own", s, e)
			case rule.kind != moves && (rule.next != 0 || len(rule.effects) > 0 || rule.bump != keep):
				t.Errorf("%s, %s: only a move changes anything", s, e)
			}
		}
	}
}

func TestStepCellVisitsEveryCell(t *testing.T) {
	for _, s := range CellStates() {
		for _, e := range CellEventKinds() {
			before := cellIn(s)
			after, effects, err := StepCell(before, permissive(e))
			rule := cellTable[s][e]
			switch rule.kind {
			case moves:
				if err != nil || after.State != Derive(rule.next, after.Live) || len(effects) != len(rule.effects) {
					t.Errorf("%s, %s: %s, %v, %v, want %s", s, e, after.State, effects, err, rule.next)
				}
				for i, effect := range effects {
					if want := (Effect{Kind: rule.effects[i], Cell: "cell-1", Version: after.Version}); effect != want {
						t.Errorf("%s, %s: effect %v, want %v", s, e, effect, want)
					}
				}
			case noOp:
				if err != nil || after != before || effects != nil {
					t.Errorf("%s, %s: %v, %v, %v, want no change", s, e, after, effects, err)
				}
			default:
				var refused *TransitionError
				if !errors.Is(err, ErrTransition) || !errors.Is(err, rule.why) || !errors.As(err, &refused) {
					t.Errorf("%s, %s: %v, want ErrTransition and %v", s, e, err, rule.why)
				} else if refused.From != s.String() || refused.Event != e.String() || refused.Cell != "cell-1" || refused.Machine != "cell" {
					t.Errorf("%s, %s: the error names %+v", s, e, refused)
				}
				if after != (Cell{}) || effects != nil {
					t.Errorf("%s, %s: refused, and yet %v, %v", s, e, after, effects)
				}
			}
		}
	}
}

// reach gives the states that moves lead to, from's own included.
func reach(from CellState) []CellState {
	seen := []CellState{from}
	for i := 0; i < len(seen); i++ {
		for _, e := range CellEventKinds() {
			if rule := cellTable[seen[i]][e]; rule.kind == moves && !slices.Contains(seen, rule.next) {
				seen = append(seen, rule.next)
			}
		}
	}
	return seen
}

func TestEveryCellStateIsReachedAndCanEnd(t *testing.T) {
	from := reach(Provisioned)
	for _, s := range CellStates() {
		if !slices.Contains(from, s) {
			t.Errorf("%s is never reached", s)
		}
		if ends := slices.Contains(reach(s), Retired); !ends {
			t.Errorf("%s cannot end", s)
		}
		if s.Terminal() != (len(reach(s)) == 1) {
			t.Errorf("%s: Terminal is %v, it leads to %v", s, s.Terminal(), reach(s))
		}
	}
}

// K31: the fat finger.
func TestFencingIsGuarded(t *testing.T) {
	healthy, dead := cellIn(Active), cellIn(Suspect)
	resumed := cellIn(Fencing)
	resumed.Live = true
	stored := cellIn(Suspect)
	stored.State = Active // as the store has it
	cases := []struct {
		name string
		cell Cell
		edit func(*CellEvent)
		want error
	}{
		{"healthy without force", healthy, func(e *CellEvent) { e.Force = false }, ErrHealthy},
		{"healthy with force", healthy, func(e *CellEvent) {}, nil},
		{"the last live one, by force", healthy, func(e *CellEvent) { e.OtherLive = 0 }, ErrLastLiveCell},
		{"stale record", healthy, func(e *CellEvent) { e.ExpectedRecord = 69 }, ErrStaleRecord},
		{"any record", healthy, func(e *CellEvent) { e.ExpectedRecord = 0 }, nil},
		{"dead without force", dead, func(e *CellEvent) { e.Force = false }, nil},
		{"dead and no other left", dead, func(e *CellEvent) { e.Force, e.OtherLive = false, 0 }, nil},
		{"dead, stale record", dead, func(e *CellEvent) { e.ExpectedRecord = 71 }, ErrStaleRecord},
		{"draining is healthy", cellIn(Draining), func(e *CellEvent) { e.Force = false }, ErrHealthy},
		{"stored as ACTIVE and dead", stored, func(e *CellEvent) { e.Force, e.OtherLive = false, 0 }, nil},
		{"twice: under way", resumed, func(e *CellEvent) { e.Force, e.OtherLive, e.ExpectedRecord = false, 0, 1 }, nil},
		{"twice: done", cellIn(Fenced), func(e *CellEvent) { e.Force, e.OtherLive, e.ExpectedRecord = false, 0, 1 }, nil},
	}
	for _, c := range cases {
		event := permissive(Fence)
		c.edit(&event)
		if _, _, err := StepCell(c.cell, event); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

func TestOtherGuards(t *testing.T) {
	lost := cellIn(Fenced)
	lost.Evidence = AttestedLoss
	cases := []struct {
		name string
		cell Cell
		kind CellEventKind
		edit func(*CellEvent)
		want error
	}{
		{"another group registers", cellIn(Active), Register, func(e *CellEvent) { e.Group = "green" }, ErrOtherGroup},
		{"no group registers", cellIn(Suspect), Register, func(e *CellEvent) { e.Group = "" }, ErrOtherGroup},
		{"proof of an earlier fence", cellIn(Fencing), Proven, func(e *CellEvent) { e.Version = 6 }, ErrStaleVersion},
		{"one person attests", cellIn(Fencing), LossAttested, func(e *CellEvent) { e.Attestation.Approver = "ann" }, ErrAttestation},
		{"a lost shard restored", lost, Restore, func(e *CellEvent) {}, ErrLost},
		{"a lost shard comes back", lost, Regress, func(e *CellEvent) {}, ErrLost},
		{"restore, stale record", cellIn(Fenced), Restore, func(e *CellEvent) { e.ExpectedRecord = 1 }, ErrStaleRecord},
		{"restore resumed for others", cellIn(Restoring), Restore, func(e *CellEvent) { e.Group = "green" }, ErrOtherGroup},
		{"restore resumed", cellIn(Restoring), Restore, func(e *CellEvent) { e.Group, e.ExpectedRecord = "", 1 }, nil},
		{"active at another version", cellIn(Restoring), Activated, func(e *CellEvent) { e.Version = 6 }, ErrStaleVersion},
		{"recovery without witness", cellIn(Regressed), Recover, func(e *CellEvent) { e.Above = 0 }, ErrNoWitness},
		{"recovered at another version", cellIn(Regressed), Recovered, func(e *CellEvent) { e.Version = 6 }, ErrStaleVersion},
		{"retired with units", cellIn(Draining), Retire, func(e *CellEvent) { e.Empty = false }, ErrNotEmpty},
		{"retired when lost", lost, Retire, func(e *CellEvent) { e.Empty = false }, nil},
		{"drain, stale record", cellIn(Active), Drain, func(e *CellEvent) { e.ExpectedRecord = 1 }, ErrStaleRecord},
	}
	for _, c := range cases {
		event := permissive(c.kind)
		c.edit(&event)
		_, _, err := StepCell(c.cell, event)
		if !errors.Is(err, c.want) || c.want != nil && !errors.Is(err, ErrTransition) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

// The life of the demo's dead cell, with the versions that its shard sees.
func TestACellDiesIsFencedAndComesBack(t *testing.T) {
	c := Cell{ID: "cell-2", State: Provisioned, Version: 1, Record: 1, Group: "blue"}
	steps := []struct {
		event   CellEvent
		state   CellState
		version Version
	}{
		{CellEvent{Kind: Register, Group: "blue"}, Active, 1},
		{CellEvent{Kind: LeaseLapsed}, Suspect, 1},
		{CellEvent{Kind: Fence}, Fencing, 2},
		{CellEvent{Kind: Fence}, Fencing, 2},
		{CellEvent{Kind: Proven, Version: 2}, Fenced, 2},
		{CellEvent{Kind: Proven, Version: 2}, Fenced, 2},
		{CellEvent{Kind: Restore, Group: "green"}, Restoring, 3},
		{CellEvent{Kind: Restore}, Restoring, 3},
		{CellEvent{Kind: Activated, Version: 3}, Suspect, 3},
		{CellEvent{Kind: Register, Group: "green"}, Active, 3},
		{CellEvent{Kind: Regress}, Regressed, 3},
		{CellEvent{Kind: Recover, Above: 8}, Regressed, 9},
		{CellEvent{Kind: Recover, Above: 8}, Regressed, 9},
		{CellEvent{Kind: Recovered, Version: 9}, Restoring, 9},
		{CellEvent{Kind: Fence, Above: 20, Force: true, OtherLive: 3}, Fencing, 21},
	}
	for i, step := range steps {
		next, _, err := StepCell(c, step.event)
		if err != nil || next.State != step.state || next.Version != step.version {
			t.Fatalf("step %d, %s: %s at %s, %v, want %s at %s", i, step.event.Kind, next.State, next.Version, err, step.state, step.version)
		}
		c = next
	}
	if _, _, err := StepCell(c, CellEvent{Kind: Register, Group: "green"}); !errors.Is(err, ErrFenced) {
		t.Errorf("a FENCING cell registers: %v, want ErrFenced", err)
	}
}

func TestStepCellRefusesABrokenCell(t *testing.T) {
	breaks := map[string]func(*Cell){
		"no state":         func(c *Cell) { c.State = 0 },
		"state unknown":    func(c *Cell) { c.State = 99 },
		"no id":            func(c *Cell) { c.ID = "" },
		"no group":         func(c *Cell) { c.Group = "" },
		"no version":       func(c *Cell) { c.Version = 0 },
		"version too high": func(c *Cell) { c.Version = MaxVersion + 1 },
		"no evidence":      func(c *Cell) { c.State = Fenced },
		"evidence":         func(c *Cell) { c.Evidence = StoreFence },
		"retired and live": func(c *Cell) { c.State = Retired },
	}
	for name, edit := range breaks {
		c := cellIn(Active)
		edit(&c)
		if _, _, err := StepCell(c, permissive(LeaseLapsed)); !errors.Is(err, ErrCell) {
			t.Errorf("%s: %v, want ErrCell", name, err)
		}
	}
	for _, kind := range []CellEventKind{0, 99} {
		if _, _, err := StepCell(cellIn(Active), CellEvent{Kind: kind}); !errors.Is(err, ErrUnknownEvent) {
			t.Errorf("event %s: %v, want ErrUnknownEvent", kind, err)
		}
	}
	last := cellIn(Suspect)
	last.Version = MaxVersion
	if _, _, err := StepCell(last, permissive(Fence)); !errors.Is(err, ErrVersion) {
		t.Errorf("no version left: %v, want ErrVersion", err)
	}
	for _, c := range []Cell{{State: Active}, {State: Suspect, Live: true}} {
		c.ID, c.Group, c.Version = "cell-1", "blue", 1
		if err := c.Check(); !errors.Is(err, ErrCell) {
			t.Errorf("%s with live %v: %v, want ErrCell", c.State, c.Live, err)
		}
	}
}

func TestCellStateWords(t *testing.T) {
	for _, s := range CellStates() {
		if back, ok := ParseCellState(s.String()); !ok || back != s {
			t.Errorf("%s reads back as %s, %v", s, back, ok)
		}
		if grantable, frozen := s.Grantable(), s.Frozen(); grantable && frozen || grantable != (s == Active) {
			t.Errorf("%s: grantable %v, frozen %v", s, grantable, frozen)
		}
	}
	if _, ok := ParseCellState("active"); ok {
		t.Error("a state in lower case was taken")
	}
	if Suspect.Stored() != Active || Draining.Stored() != Draining || Derive(Active, false) != Suspect || Derive(Draining, false) != Draining {
		t.Error("SUSPECT is not derived from ACTIVE")
	}
	for _, s := range []CellState{Suspect, Fencing, Fenced, Regressed} {
		if !s.Frozen() {
			t.Errorf("%s is not frozen", s)
		}
	}
	for _, s := range []CellState{Provisioned, Active, Draining, Restoring, Retired} {
		if s.Frozen() {
			t.Errorf("%s is frozen", s)
		}
	}
}
