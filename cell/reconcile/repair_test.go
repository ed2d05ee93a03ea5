package reconcile

import (
	"errors"
	"testing"

	"github.com/cellquota/cellquota/cell/shard"
)

// What its judge does not propose now is refused before the shard is asked (there is none here): a finding
// names an entry, or is a MISSING_ACTION, also where reversing or releasing would break what is whole.
func TestRepairNeedsAProposal(t *testing.T) {
	for name, f := range map[string]looked{
		"reverse": {Finding: shard.Finding{Kind: shard.QuantityMismatch, Entry: 7, Action: shard.ActReverse}, facts: closed()},
		"release": {Finding: shard.Finding{Kind: shard.MissingAction, Action: shard.ActRelease}, facts: closed()},
	} {
		if _, err := (&Loop{}).repair(t.Context(), f, shard.RepairNote{Action: shard.RepairAction(name)}, shard.Again{}); !errors.Is(err, shard.ErrRepair) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
