package store_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/telemetry"
	"github.com/cellquota/cellquota/internal/testkit"
)

// published is a campaign on sale.
func published() core.Campaign {
	at, q := time.Now().UTC(), quantity.Must
	return core.Campaign{
		State: core.CampaignPublished, Version: 3, Owner: "me", PublishedAt: at, BookedSKUs: []ids.SKUID{key.SKU},
		Spec: core.CampaignSpec{
			ID: key.Campaign, OpenAt: at, CloseAt: at.Add(time.Hour), Mode: core.ModeDirect, Admission: core.AdmissionMirror, Scope: core.ScopeSKU, MaxQuantity: 1,
			HoldFor: time.Minute, Ack: core.AckKafka, Refund: core.RefundRestock, OnLeaseLoss: core.LeaseLossPause, Reclaim: core.ReclaimNever, Routing: core.RoutingUser,
			Permits: core.PermitRules{ClaimFrom: at, TTL: time.Second}, Gate: core.Gate{MaxWait: time.Second}, Cells: []ids.CellID{"cell-1"},
			SKUs: []core.SKUSpec{{
				ID: key.SKU, PhysicalStock: q(9), SaleLimit: q(8), Inventory: core.InventoryCounter, Price: core.Money{Amount: "1", Currency: "CNY"}, Reserve: q(1),
				Split: core.SplitRules{Policy: allocator.Equal}, TopUp: core.TopUpRules{Policy: core.AutoManual}, Rebalance: core.AutoManual,
			}},
		},
	}
}

// Every change of a cell's, a campaign's and an operation's state is one line with the core fields, once it
// stands; what was refused, and what leaves the state as it is, is none.
func TestChangesOfStateAreLogged(t *testing.T) {
	p := demo(t)
	var out bytes.Buffer
	s, err := store.Open(store.Config{Endpoints: p.etcd.Endpoints(), Prefix: prefix}, store.Deps{Clock: clock.System(), Log: telemetry.NewLogger(&out, "controlplane", nil)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	ctx := testkit.Deadline(t)
	_, err = p.Update(ctx, "sell", func(tx *store.Tx) error { // by the other process: no line of this one
		_, _, err := tx.Campaign(key.Campaign)
		return errors.Join(err, tx.PutCampaign(published()))
	})
	if err != nil {
		t.Fatal(err)
	}
	refused := errors.New("refused")
	fence := func(ends error) func(tx *store.Tx) error {
		return func(tx *store.Tx) error {
			c, known, err := tx.Cell("cell-1")
			if err != nil || !known {
				t.Fatalf("known %t, %v", known, err)
			}
			_, _, err = tx.Operation("f1")
			c.State, c.Version, c.FenceVersion, c.OperationID = core.CellFencing, c.Version+1, 2, "f1"
			op := core.Operation{ID: "f1", Kind: core.OperationFence, Subject: "cell-1", State: core.OperationPending, Actor: "ann", StartedAt: tx.Now()}
			return errors.Join(err, tx.PutCell(c), tx.PutOperation(op), ends)
		}
	}
	if _, err := s.Update(ctx, "fence", fence(refused)); !errors.Is(err, refused) {
		t.Fatal(err)
	}
	if _, err := s.Update(ctx, "fence", fence(nil)); err != nil {
		t.Fatal(err)
	}
	step := func(step string, state core.OperationState) func(tx *store.Tx) error {
		return func(tx *store.Tx) error {
			op, _, err := tx.Operation("f1")
			op.Step, op.State = step, state
			return errors.Join(err, tx.PutOperation(op))
		}
	}
	for _, at := range []string{"FENCING", "RECLAIM"} { // the second leaves the state as it is
		if _, err := s.Update(ctx, "step", step(at, core.OperationRunning)); err != nil {
			t.Fatal(err)
		}
	}
	_, err = s.Update(ctx, "close", func(tx *store.Tx) error {
		c, _, err := tx.Campaign(key.Campaign)
		if err != nil {
			return err
		}
		c, _, err = c.Step(core.EventClose)
		return errors.Join(err, tx.PutCampaign(c))
	})
	if err != nil {
		t.Fatal(err)
	}
	var lines []map[string]any
	for line := range strings.Lines(out.String()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatal(err)
		}
		if fields["msg"] == "state changed" {
			lines = append(lines, fields)
		}
	}
	want := []map[string]any{
		{"event": "cell_state_changed", "old_state": "ACTIVE", "new_state": "FENCING", "cell_id": "cell-1", "fence_version": 2.0},
		{"event": "operation_state_changed", "old_state": "", "new_state": "PENDING", "operation": "fence-cell", "operation_id": "f1", "cell_id": "cell-1"},
		{"event": "operation_state_changed", "old_state": "PENDING", "new_state": "RUNNING", "operation": "fence-cell", "operation_id": "f1", "step": "FENCING"},
		{"event": "campaign_state_changed", "old_state": "PUBLISHED", "new_state": "CLOSED", "campaign_id": "double-eleven"},
	}
	if len(lines) != len(want) {
		t.Fatalf("%d lines, want %d:\n%s", len(lines), len(want), out.String())
	}
	for i, fields := range want {
		for name, value := range fields {
			if lines[i][name] != value {
				t.Errorf("line %d: %s is %v, want %v", i+1, name, lines[i][name], value)
			}
		}
	}
}
