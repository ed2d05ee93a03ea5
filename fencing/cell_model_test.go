package fencing

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// The twin of StepCell: the same life told event by event, as the architecture
// tells it, without the table. It is total: every pair has an answer.
func cellModel(c Cell, e CellEvent) (Cell, []EffectKind, error) {
	in := func(states ...CellState) bool { return slices.Contains(states, c.State) }
	selling := in(Provisioned, Active, Suspect, Draining)
	raise := func(v, reported Version) Version {
		if reported > v {
			v = reported
		}
		return v + 1
	}
	expected := e.ExpectedRecord == 0 || e.ExpectedRecord == c.Record
	if in(Retired) {
		if e.Kind == LeaseLapsed || e.Kind == Retire {
			return c, nil, nil
		}
		return c, nil, ErrRetired
	}
	if in(Regressed) && !slices.Contains([]CellEventKind{LeaseLapsed, LossAttested, Regress, Recover, Recovered}, e.Kind) {
		return c, nil, ErrRegressed
	}
	switch e.Kind {
	case Register:
		if in(Fencing, Fenced) {
			return c, nil, ErrFenced
		}
		if e.Group != c.Group {
			return c, nil, ErrOtherGroup
		}
		c.Live = true
		if !in(Draining, Restoring) {
			c.State = Active
		}
		return c, []EffectKind{GrantLease}, nil
	case LeaseLapsed:
		if in(Provisioned) {
			return c, nil, ErrImpossible
		}
		c.Live = false
		if in(Active) {
			c.State = Suspect
		}
		return c, nil, nil
	case Drain:
		switch {
		case in(Draining):
			return c, nil, nil
		case in(Fencing, Fenced):
			return c, nil, ErrFenced
		case in(Restoring):
			return c, nil, ErrRestoring
		case in(Provisioned):
			return c, nil, ErrNeverSold
		case in(Suspect):
			return c, nil, ErrNotLive
		case !expected:
			return c, nil, ErrStaleRecord
		}
		c.State = Draining
		return c, []EffectKind{AskReturns}, nil
	case AbortDrain:
		switch {
		case in(Fencing, Fenced):
			return c, nil, ErrFenced
		case in(Provisioned, Restoring):
			return c, nil, ErrNotDraining
		case in(Active, Suspect):
			return c, nil, nil
		case !expected:
			return c, nil, ErrStaleRecord
		}
		c.State = Suspect
		if c.Live {
			c.State = Active
		}
		return c, nil, nil
	case Fence:
		switch {
		case in(Fenced):
			return c, nil, nil
		case in(Fencing):
			return c, []EffectKind{RunStoreFence}, nil
		case !expected:
			return c, nil, ErrStaleRecord
		case c.Live && e.OtherLive <= 0:
			return c, nil, ErrLastLiveCell
		case c.Live && !e.Force:
			return c, nil, ErrHealthy
		}
		c.State, c.Version = Fencing, raise(c.Version, e.Above)
		return c, []EffectKind{RunStoreFence}, nil
	case Proven:
		switch {
		case in(Provisioned):
			return c, nil, ErrImpossible
		case in(Fenced):
			return c, nil, nil
		case !in(Fencing) || e.Version != c.Version:
			return c, nil, ErrStaleVersion
		}
		c.State, c.Evidence = Fenced, StoreFence
		return c, nil, nil
	case LossAttested:
		if selling || in(Restoring) {
			return c, nil, ErrFenceFirst
		}
		a := e.Attestation
		if a.Reason == "" || a.Operator == "" || a.Approver == "" || a.Operator == a.Approver {
			return c, nil, ErrAttestation
		}
		if in(Regressed) {
			c.Version = raise(c.Version, e.Above)
		}
		c.State, c.Evidence = Fenced, AttestedLoss
		return c, []EffectKind{RecordWriteOff}, nil
	case Restore:
		switch {
		case selling:
			return c, nil, ErrNotFenced
		case in(Fencing):
			return c, nil, ErrNotProven
		case in(Restoring) && e.Group != "" && e.Group != c.Group:
			return c, nil, ErrOtherGroup
		case in(Restoring):
			return c, []EffectKind{RunRestore}, nil
		case !expected:
			return c, nil, ErrStaleRecord
		case c.Evidence == AttestedLoss:
			return c, nil, ErrLost
		}
		c.State, c.Evidence, c.Version = Restoring, 0, raise(c.Version, e.Above)
		if e.Group != "" {
			c.Group = e.Group
		}
		return c, []EffectKind{RunRestore}, nil
	case Activated:
		switch {
		case in(Provisioned):
			return c, nil, ErrImpossible
		case selling:
			return c, nil, nil
		case !in(Restoring) || e.Version != c.Version:
			return c, nil, ErrStaleVersion
		}
		c.State = Suspect
		if c.Live {
			c.State = Active
		}
		return c, nil, nil
	case Regress:
		if c.Evidence == AttestedLoss {
			return c, nil, ErrLost
		}
		c.State, c.Evidence = Regressed, 0
		return c, nil, nil
	case Recover:
		switch {
		case !in(Regressed):
			return c, nil, ErrNotRegressed
		case !expected:
			return c, nil, ErrStaleRecord
		case e.Above == 0:
			return c, nil, ErrNoWitness
		}
		if c.Version <= e.Above {
			c.Version = e.Above + 1
		}
		return c, []EffectKind{RunRecover}, nil
	case Recovered:
		switch {
		case in(Provisioned):
			return c, nil, ErrImpossible
		case selling || in(Restoring):
			return c, nil, nil
		case !in(Regressed) || e.Version != c.Version:
			return c, nil, ErrStaleVersion
		}
		c.State = Restoring
		return c, nil, nil
	case Retire:
		switch {
		case in(Active, Suspect):
			return c, nil, ErrDrainFirst
		case in(Fencing):
			return c, nil, ErrNotProven
		case in(Restoring):
			return c, nil, ErrRestoring
		case !expected:
			return c, nil, ErrStaleRecord
		case !e.Empty && c.Evidence != AttestedLoss:
			return c, nil, ErrNotEmpty
		}
		c.State, c.Live = Retired, false
		return c, []EffectKind{RunRetire}, nil
	}
	return c, nil, ErrUnknownEvent
}

func drawnCellEvent(t *rapid.T, c Cell) CellEvent {
	near := func(name string) Version {
		return Version(rapid.IntRange(max(0, int(c.Version)-1), int(c.Version)+2).Draw(t, name))
	}
	people := []string{"ann", "bob", ""}
	return CellEvent{
		Kind:           rapid.SampledFrom(CellEventKinds()).Draw(t, "event"),
		ExpectedRecord: rapid.SampledFrom([]int64{0, c.Record, c.Record - 1}).Draw(t, "expected"),
		Group:          rapid.SampledFrom([]string{c.Group, c.Group, "blue", "green", ""}).Draw(t, "group"),
		Force:          rapid.Bool().Draw(t, "force"),
		OtherLive:      rapid.IntRange(0, 2).Draw(t, "others"),
		Above:          rapid.SampledFrom([]Version{0, near("above")}).Draw(t, "reported"),
		Version:        near("version"),
		Empty:          rapid.Bool().Draw(t, "empty"),
		Attestation: Attestation{
			Reason:   rapid.SampledFrom([]string{"burnt", "burnt", ""}).Draw(t, "reason"),
			Operator: rapid.SampledFrom(people).Draw(t, "operator"), Approver: rapid.SampledFrom(people).Draw(t, "approver"),
		},
	}
}

func checkCellAgainstModel(t *rapid.T) {
	c := Cell{ID: "cell-1", State: Provisioned, Version: 1, Record: 1, Group: "blue"}
	for range rapid.IntRange(1, 60).Draw(t, "events") {
		e := drawnCellEvent(t, c)
		got, effects, err := StepCell(c, e)
		want, kinds, refusal := cellModel(c, e)
		if !errors.Is(err, refusal) || (err == nil) != (refusal == nil) {
			t.Fatalf("%+v, %+v: error %v, the model says %v", c, e, err, refusal)
		}
		if err != nil {
			continue
		}
		var gotKinds []EffectKind
		for _, effect := range effects {
			gotKinds = append(gotKinds, effect.Kind)
		}
		if got != want || !slices.Equal(gotKinds, kinds) {
			t.Fatalf("%+v, %+v: %+v %v, the model says %+v %v", c, e, got, gotKinds, want, kinds)
		}
		if got.Version < c.Version {
			t.Fatalf("%s took the version from %s to %s", e.Kind, c.Version, got.Version)
		}
		if got != c {
			got.Record++
		}
		c = got
	}
}

func TestStepCellAgreesWithTheModel(t *testing.T) { rapid.Check(t, checkCellAgainstModel) }

func FuzzStepCell(f *testing.F) { f.Fuzz(rapid.MakeFuzz(checkCellAgainstModel)) }
