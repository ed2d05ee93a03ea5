package fencing

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// The twin of StepReclaim: the same way told as progress made, without the
// table. Each flag is a fact; the state is read from the facts.
type progress struct {
	written, proven, lost, begun bool // fence
	restoring, settling, active  bool // restore
	pending, withheld            map[SKU]bool
	wishReclaim, wishTopUp       bool
	wishRestore                  bool
}

func (p progress) state() ReclaimState {
	switch {
	case p.active:
		return ActiveAgain
	case p.settling:
		return SettleOnly
	case p.restoring:
		return RestoreRunning
	case p.begun && len(p.pending) == 0:
		return Reclaimed
	case p.begun:
		return Reclaiming
	case p.proven:
		return FenceProven
	case p.written:
		return FenceRunning
	}
	return FenceRequested
}

// on gives the reason why an event is refused, or takes it in.
func (p *progress) on(e ReclaimEvent) error {
	state := p.state()
	evidence := p.proven || p.lost
	switch e.Kind {
	case FencingWritten:
		if !p.written && e.Version != 2 {
			return ErrStaleVersion
		}
		p.written = true
	case ProofStored:
		switch {
		case !p.written:
			return ErrImpossible
		case evidence:
			return nil
		case e.Version != 2:
			return ErrStaleVersion
		}
		p.proven, p.pending = true, set(e.SKUs)
	case WriteOff:
		switch {
		case p.lost:
			return nil
		case !p.written || p.restoring:
			return ErrFenceFirst
		case p.proven && state != Reclaimed:
			return ErrReclaimFirst
		case e.Attestation.Check() != nil:
			return ErrAttestation
		}
		p.lost, p.begun, p.pending, p.withheld = true, true, set(e.SKUs), nil
		p.wishReclaim, p.wishTopUp, p.wishRestore = false, false, false
	case BeginReclaim:
		switch {
		case p.active:
			return ErrFenceFirst
		case p.restoring:
			return ErrRestoring
		case !evidence:
			p.wishReclaim = true
		case state == Reclaimed:
			p.pending, p.withheld = p.withheld, nil
		default:
			p.begun = true
		}
	case SKUBooked, SKUWithheld:
		switch {
		case !p.begun:
			return ErrImpossible
		case state != Reclaiming:
			return nil
		case e.Version != 2:
			return ErrStaleVersion
		case len(e.SKUs) != 1:
			return ErrOneSKU
		}
		if e.Kind == SKUWithheld && p.pending[e.SKUs[0]] {
			p.withheld = set(append(sorted(p.withheld), e.SKUs[0]))
		}
		delete(p.pending, e.SKUs[0])
	case BeginTopUp:
		if p.lost {
			return ErrLost
		}
		p.wishTopUp = true
	case ToppedUp:
		switch {
		case state < Reclaimed:
			return ErrImpossible
		case e.Version != 2:
			return ErrStaleVersion
		}
		p.wishTopUp = false
	case BeginRestore:
		switch {
		case !evidence:
			return ErrNotProven
		case p.restoring:
			return nil
		case p.lost:
			return ErrLost
		}
		p.begun, p.wishRestore = true, true
	case ShardSettling:
		switch {
		case !p.restoring:
			return ErrImpossible
		case !p.settling && e.Version != 3:
			return ErrStaleVersion
		}
		p.settling = true
	case ShardActive:
		switch {
		case !p.settling:
			return ErrImpossible
		case !p.active && e.Version != 3:
			return ErrStaleVersion
		}
		p.active = true
	}
	if p.proven && p.wishReclaim {
		p.begun, p.wishReclaim = true, false
	}
	if p.state() == Reclaimed && p.wishRestore {
		p.restoring, p.wishRestore = true, false
	}
	return nil
}

// owes lists the kinds that are due, one per SKU where there are several.
func (p progress) owes() []EffectKind {
	var out []EffectKind
	switch p.state() {
	case FenceRequested:
		out = []EffectKind{WriteFencing}
	case FenceRunning:
		out = []EffectKind{RunStoreFence, StoreProof}
	case Reclaiming:
		kind := BookReclaim
		if p.lost {
			out, kind = []EffectKind{RecordWriteOff}, BookWriteOff
		}
		for range p.pending {
			out = append(out, kind)
		}
	case RestoreRunning:
		out = []EffectKind{WriteRestoring, RunRestore}
	case SettleOnly:
		out = []EffectKind{AwaitSettled, RunActivate, WriteActive}
	}
	if p.wishTopUp && p.state() >= Reclaimed {
		out = append(out, TopUpOthers)
	}
	return out
}

func set(skus []SKU) map[SKU]bool {
	out := map[SKU]bool{}
	for _, s := range skus {
		out[s] = true
	}
	return out
}

func sorted(skus map[SKU]bool) []SKU {
	var out []SKU
	for s := range skus {
		out = append(out, s)
	}
	slices.SortFunc(out, SKU.Compare)
	return out
}

func drawnReclaimEvent(t *rapid.T) ReclaimEvent {
	skus := []SKU{phone, watch, {Campaign: "other", SKU: "pen"}}
	return ReclaimEvent{
		Kind:    rapid.SampledFrom(ReclaimEventKinds()).Draw(t, "event"),
		Version: rapid.SampledFrom([]Version{2, 2, 2, 3, 3, 1}).Draw(t, "version"),
		SKUs:    rapid.SliceOfN(rapid.SampledFrom(skus), 0, 3).Draw(t, "skus"),
		Attestation: Attestation{
			Reason: "burnt", Operator: "ann", Approver: rapid.SampledFrom([]string{"bob", "bob", "ann", ""}).Draw(t, "approver"),
		},
	}
}

func checkReclaimAgainstModel(t *rapid.T) {
	r := Reclaim{Cell: "cell-1", State: FenceRequested, Version: 2}
	var model progress
	for range rapid.IntRange(1, 60).Draw(t, "events") {
		e := drawnReclaimEvent(t)
		next, due, err := StepReclaim(r, e)
		if refusal := model.on(e); !errors.Is(err, refusal) || (err == nil) != (refusal == nil) {
			t.Fatalf("%+v, %+v: error %v, the model says %v", r, e, err, refusal)
		}
		if err != nil {
			continue
		}
		var kinds []EffectKind
		for _, effect := range due {
			kinds = append(kinds, effect.Kind)
		}
		if next.State != model.state() || !slices.Equal(kinds, model.owes()) {
			t.Fatalf("%+v, %+v: %s owes %v, the model says %s and %v", r, e, next.State, kinds, model.state(), model.owes())
		}
		if !slices.Equal(next.Pending, sorted(model.pending)) || !slices.Equal(next.Withheld, sorted(model.withheld)) {
			t.Fatalf("%s: pending %v withheld %v, the model says %v and %v", next.State, next.Pending, next.Withheld, sorted(model.pending), sorted(model.withheld))
		}
		if wish := (Wish{Reclaim: model.wishReclaim, TopUp: model.wishTopUp, Restore: model.wishRestore}); next.Wish != wish {
			t.Fatalf("%+v, %+v: wishes %+v, the model says %+v", r, e, next.Wish, wish)
		}
		// A crash here and now loses nothing: what is owed is owed again.
		if !reflect.DeepEqual(next.Due(), due) {
			t.Fatalf("after a crash %v is owed, before it was %v", next.Due(), due)
		}
		r = next
	}
}

func TestStepReclaimAgreesWithTheModel(t *testing.T) { rapid.Check(t, checkReclaimAgainstModel) }

func FuzzStepReclaim(f *testing.F) { f.Fuzz(rapid.MakeFuzz(checkReclaimAgainstModel)) }
