package fencing

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Lost is an adjustment that the books know and a shard that went back in time may
// have lost, with the outcome that it had.
type Lost struct {
	ID  string
	SKU SKU
	// Version it was numbered under; of a SEAL the one that the fence installed.
	Version Version
	Number  int64 // 0 for a SEAL
	Kind    AdjustmentKind
	Units   int64 // asked for; they count where Outcome is OutcomeApplied
	Outcome Outcome
}

// ErrReplay says that the books contradict themselves about what a shard once did.
var ErrReplay = errors.New("the adjustments of the books do not fit together")

// PlanRecovery gives adjustments in the order in which the shard once took them: by
// SKU, fence version and number, each version's SEAL last. ErrReplay for two of one
// number, or one whose outcome is not known.
func PlanRecovery(all []Lost) ([]Lost, error) {
	out := slices.Clone(all)
	slices.SortStableFunc(out, func(a, b Lost) int {
		return cmp.Or(a.SKU.Compare(b.SKU), a.ends().Compare(b.ends()), cmp.Compare(a.place(), b.place()), cmp.Compare(a.Number, b.Number))
	})
	seen := map[string]bool{}
	for i, a := range out {
		switch {
		case a.Outcome == OutcomeUnknown || a.Units < 0 || a.Units > MaxUnits || a.Version < 1:
			return nil, fmt.Errorf("%s of %s: %s, %d units under version %s: %w", a.ID, a.SKU, a.Outcome, a.Units, a.Version, ErrReplay)
		case (a.Kind == KindSeal) != (a.Number == 0) || a.Kind == KindWriteOff:
			return nil, fmt.Errorf("%s of %s: %s with number %d: %w", a.ID, a.SKU, a.Kind, a.Number, ErrReplay)
		case seen[a.ID], i > 0 && out[i-1].SKU == a.SKU && out[i-1].Version == a.Version && out[i-1].Number == a.Number && a.Kind != KindSeal && out[i-1].Kind != KindSeal:
			return nil, fmt.Errorf("%s of %s: number %d of version %s is used twice: %w", a.ID, a.SKU, a.Number, a.Version, ErrReplay)
		}
		seen[a.ID] = true
	}
	return out, nil
}

// ends is the version that an adjustment belongs to: a SEAL ends the one before its own.
func (a Lost) ends() Version {
	if a.Kind == KindSeal {
		return a.Version - 1
	}
	return a.Version
}

// place puts a SEAL behind every number of its version.
func (a Lost) place() int {
	if a.Kind == KindSeal {
		return 1
	}
	return 0
}
