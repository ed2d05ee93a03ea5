package store

import (
	"context"
	"fmt"
	"slices"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/telemetry"
)

// change is the state of one record before and after a transaction.
type change struct {
	key, event string
	old, next  string // old is "" for a record that was not there
	fields     []any
}

// saw remembers the state that this transaction found a record in.
func saw[S fmt.Stringer](tx *Tx, key string, found bool, state S) {
	if !found {
		return
	}
	if tx.found == nil {
		tx.found = map[string]string{}
	}
	tx.found[key] = state.String()
}

// moves remembers that this transaction puts a record in a state; of several puts of one
// record the last counts.
func (tx *Tx) moves(key, event string, state fmt.Stringer, fields ...any) {
	tx.changes = slices.DeleteFunc(tx.changes, func(c change) bool { return c.key == key })
	if old := tx.found[key]; old != state.String() {
		tx.changes = append(tx.changes, change{key, event, old, state.String(), fields})
	}
}

// tell logs the changes of state that this transaction committed, whoever asked for
// them, each once. A commit whose answer was lost is told by nobody: the audit has it.
func (tx *Tx) tell(ctx context.Context) {
	for _, c := range tx.changes {
		tx.s.log.InfoContext(ctx, "state changed", append([]any{telemetry.Event, c.event, telemetry.OldState, c.old, telemetry.NewState, c.next}, c.fields...)...)
	}
}

func (tx *Tx) movesCell(key string, c core.Cell) {
	tx.moves(key, "cell_state_changed", c.State, about("", "", c.Spec.ID, telemetry.FenceVersion, c.FenceVersion)...)
}

func (tx *Tx) movesCampaign(key string, c core.Campaign) {
	tx.moves(key, "campaign_state_changed", c.State, about(c.Spec.ID, "", "")...)
}

func (tx *Tx) movesOperation(key string, o core.Operation) {
	campaign, sku, _ := o.About()
	tx.moves(key, "operation_state_changed", o.State, about(campaign, sku, o.AboutCell(),
		telemetry.Operation, o.Kind, telemetry.OperationID, o.ID, telemetry.Step, o.Step)...)
}

// about gives the fields of what a line is about, of those that there are, behind others.
func about(campaign ids.CampaignID, sku ids.SKUID, cell ids.CellID, others ...any) []any {
	if campaign != "" {
		others = append(others, telemetry.CampaignID, string(campaign))
	}
	if sku != "" {
		others = append(others, telemetry.SKUID, string(sku))
	}
	if cell != "" {
		others = append(others, telemetry.CellID, string(cell))
	}
	return others
}
