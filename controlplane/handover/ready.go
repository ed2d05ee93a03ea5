package handover

import (
	"fmt"
	"strings"

	"github.com/cellquota/cellquota/controlplane/core"
)

// facts are what decides whether a handover may begin.
type facts struct {
	campaign core.Campaign
	from, to core.Cell
	// taker is the taker's state with SUSPECT included.
	taker core.CellState
	// processes are the taker's that hold a lease.
	processes []core.Instance
	// behind lists which of them do not serve the campaign yet, in words.
	behind []string
}

// refusal is why a handover can never begin, or nil.
func (f facts) refusal() error {
	if err := f.campaign.MayHandOver(); err != nil {
		return err
	}
	if err := f.campaign.TakesPart(f.to.Spec.ID); err != nil {
		return err
	}
	if f.to.State == core.CellRetired {
		return f.to.MayTakeBuckets(f.to.State)
	}
	if f.from.State == core.CellRetired {
		return f.from.MayGive()
	}
	return nil
}

// missing says what a handover waits for before it begins; "" for nothing. Both
// shards are asked besides.
func (f facts) missing() string {
	if err := f.from.MayGive(); err != nil {
		return err.Error()
	}
	if err := f.to.MayTakeBuckets(f.taker); err != nil {
		return err.Error()
	}
	for _, p := range f.processes {
		if p.SchemaStep < core.HandoverStep {
			return fmt.Sprintf("%s/%s (program %s) knows no handover: it would not answer for requests that were carried; bring it to this release", p.Cell, p.ID, p.ProgramVersion)
		}
	}
	if len(f.behind) > 0 {
		return "the taker does not serve the campaign yet: " + strings.Join(f.behind, ", ")
	}
	return ""
}
