package core_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
)

func demoCampaign(state core.CampaignState) core.Campaign {
	return core.Campaign{Spec: demoSpec(), State: state, Version: 5}
}

// TestPauseAndResume: the whole campaign and single SKUs are two things, neither outlives the window, and
// what is so already changes nothing.
func TestPauseAndResume(t *testing.T) {
	open := demoSpec().OpenAt
	over := demoSpec().CloseAt
	c := demoCampaign(core.CampaignPublished)
	whole, changed, err := c.Pause("", open)
	if err != nil || !changed || whole.State != core.CampaignPaused || whole.Version != 6 {
		t.Fatalf("pause: %+v, %v, %v", whole, changed, err)
	}
	if again, changed, err := whole.Pause("", open); err != nil || changed || again.Version != 6 {
		t.Errorf("pause again: %v, %v", changed, err)
	}
	one, changed, err := whole.Pause("phone-x", open)
	if err != nil || !changed || one.Version != 7 || !slices.Equal(one.PausedSKUs, []ids.SKUID{"phone-x"}) || len(whole.PausedSKUs) != 0 {
		t.Fatalf("pause a SKU of a paused campaign: %+v, %v, %v", one, changed, err)
	}
	back, _, err := one.Resume("", open)
	if err != nil || back.State != core.CampaignPublished || len(back.PausedSKUs) != 1 {
		t.Fatalf("resume keeps the SKU paused: %+v, %v", back, err)
	}
	if all, changed, err := back.Resume("phone-x", open); err != nil || !changed || len(all.PausedSKUs) != 0 || all.Version != 9 {
		t.Errorf("resume the SKU: %+v, %v, %v", all, changed, err)
	}
	if _, _, err := c.Pause("tablet", open); !errors.Is(err, core.ErrUnknownSKU) {
		t.Errorf("an unknown SKU: %v", err)
	}
	for _, state := range core.CampaignStates() {
		running := state == core.CampaignPublished || state == core.CampaignPaused
		for name, verb := range map[string]func(time.Time) error{
			"pause":      func(now time.Time) error { _, _, err := demoCampaign(state).Pause("phone-x", now); return err },
			"resume":     func(now time.Time) error { _, _, err := demoCampaign(state).Resume("", now); return err },
			"resume SKU": func(now time.Time) error { _, _, err := demoCampaign(state).Resume("phone-x", now); return err },
		} {
			if err := verb(open); running != (err == nil) || err != nil && !errors.Is(err, core.ErrCampaignState) {
				t.Errorf("%s in %s: %v", name, state, err)
			}
			if err := verb(over); !errors.Is(err, core.ErrCampaignState) {
				t.Errorf("%s in %s at close_at: %v", name, state, err)
			}
		}
	}
}

// TestWithCell: a cell joins what is on sale, once, and never beyond the bounds.
func TestWithCell(t *testing.T) {
	now := demoSpec().OpenAt
	cell := core.Cell{Spec: core.CellSpec{ID: "cell-5"}, State: core.CellActive}
	c := demoCampaign(core.CampaignPublished)
	joined, changed, err := c.WithCell(cell, now)
	if err != nil || !changed || joined.Version != 6 || len(joined.Spec.Cells) != 5 || len(c.Spec.Cells) != 4 {
		t.Fatalf("%+v, %v, %v", joined, changed, err)
	}
	if _, changed, err := joined.WithCell(cell, now); changed || err != nil {
		t.Errorf("again: %v, %v", changed, err)
	}
	cell.State = core.CellDraining
	if _, _, err := c.WithCell(cell, now); !errors.Is(err, core.ErrCellState) {
		t.Errorf("a draining cell: %v", err)
	}
	cell.State = core.CellActive
	if _, _, err := demoCampaign(core.CampaignDraft).WithCell(cell, now); !errors.Is(err, core.ErrCampaignState) {
		t.Errorf("a draft: %v", err)
	}
	full := demoCampaign(core.CampaignPublished)
	full.Spec.Cells = nil
	for range allocator.MaxCells {
		full.Spec.Cells = append(full.Spec.Cells, ids.CellID("c"+strings.Repeat("x", len(full.Spec.Cells)%50)))
	}
	if _, _, err := full.WithCell(cell, now); !errors.Is(err, rpcstatus.ErrInvalidArgument) || !strings.Contains(err.Error(), "not 1001") {
		t.Errorf("cell number 1,001: %v", err)
	}
}

// TestAmend: each row changes the published file in one place; the path is named, and refused unless it is
// one of those that may change.
func TestAmend(t *testing.T) {
	now := demoSpec().OpenAt
	rows := []struct {
		path, rule string // rule "": allowed
		edit       func(*core.CampaignSpec)
	}{
		{"close_at", "", func(s *core.CampaignSpec) { s.CloseAt = s.CloseAt.Add(time.Minute) }},
		{"close_at", "may only become later", func(s *core.CampaignSpec) { s.CloseAt = s.CloseAt.Add(-time.Minute) }},
		{"display", "", func(s *core.CampaignSpec) { s.DisplayJSON = `{"title":"new"}` }},
		{"limits", "", func(s *core.CampaignSpec) { s.Limits = &core.Limits{User: &core.Rate{Milli: 1000, Burst: 1}} }},
		{"skus[0].top_up", "", func(s *core.CampaignSpec) { s.SKUs[0].TopUp.Policy = core.AutoAuto }},
		{"skus[0].rebalance", "", func(s *core.CampaignSpec) { s.SKUs[0].Rebalance = core.AutoAuto }},
		{"open_at", "must stay", func(s *core.CampaignSpec) { s.OpenAt = s.OpenAt.Add(time.Second) }},
		{"mode", "must stay", func(s *core.CampaignSpec) { s.Mode = core.ModeLottery }},
		{"admission", "must stay", func(s *core.CampaignSpec) { s.Admission = core.AdmissionDatabase }},
		{"purchase_scope", "must stay", func(s *core.CampaignSpec) { s.Scope = core.ScopeCampaign }},
		{"max_quantity_per_order", "must stay", func(s *core.CampaignSpec) { s.MaxQuantity = 2 }},
		{"reservation_ttl", "must stay", func(s *core.CampaignSpec) { s.HoldFor++ }},
		{"ack_mode", "must stay", func(s *core.CampaignSpec) { s.Ack = core.AckRedis }},
		{"refund_rule", "must stay", func(s *core.CampaignSpec) { s.Refund = core.RefundRestock }},
		{"on_lease_loss", "must stay", func(s *core.CampaignSpec) { s.OnLeaseLoss = core.LeaseLossPause }},
		{"reclaim", "must stay", func(s *core.CampaignSpec) { s.Reclaim = core.ReclaimNever }},
		{"routing", "must stay", func(s *core.CampaignSpec) { s.Routing = core.RoutingHomeRegion }},
		{"permits.claim_from", "must stay", func(s *core.CampaignSpec) { s.Permits.ClaimFrom = s.OpenAt }},
		{"permits.ttl", "must stay", func(s *core.CampaignSpec) { s.Permits.TTL++ }},
		{"eligibility", "must stay", func(s *core.CampaignSpec) { s.Eligibility.DenyRiskTiers = []string{"x"} }},
		{"holds", "must stay", func(s *core.CampaignSpec) { s.Holds.MaxUnpaidPerUser = 3 }},
		{"gate", "must stay", func(s *core.CampaignSpec) { s.Gate.BaselineRPS = 3 }},
		{"cells", "add-cell", func(s *core.CampaignSpec) { s.Cells = append(s.Cells, "cell-5") }},
		{"skus[0].physical_stock", "must stay", func(s *core.CampaignSpec) { s.SKUs[0].PhysicalStock = quantity.Must(13_000) }},
		{"skus[0].sale_limit", "set-limit", func(s *core.CampaignSpec) { s.SKUs[0].SaleLimit = quantity.Must(11_000) }},
		{"skus[0].inventory_mode", "must stay", func(s *core.CampaignSpec) { s.SKUs[0].Inventory = core.InventoryToken }},
		{"skus[0].price", "must stay", func(s *core.CampaignSpec) { s.SKUs[0].Price.Amount = "1" }},
		{"skus[0].reserve", "must stay", func(s *core.CampaignSpec) { s.SKUs[0].Reserve = quantity.Must(1) }},
		{"skus[0].split", "must stay", func(s *core.CampaignSpec) { s.SKUs[0].Split.Policy = allocator.Weighted }},
		{"skus[1]", "must stay", func(s *core.CampaignSpec) { s.SKUs = append(s.SKUs, s.SKUs[0]); s.SKUs[1].ID = "limits" }},
	}
	for _, row := range rows {
		c, spec := demoCampaign(core.CampaignPublished), demoSpec()
		row.edit(&spec)
		next, changed, err := c.Amend(spec, now)
		if row.rule == "" {
			if err != nil || !slices.Equal(changed, []string{row.path}) || next.Version != 6 || !next.Spec.Equal(spec) {
				t.Errorf("%s: %v, %v, version %d", row.path, changed, err, next.Version)
			}
			continue
		}
		v := rpcstatus.Violations(err)
		if !errors.Is(err, core.ErrFrozen) || len(v) != 1 || v[0].Field != row.path || !strings.Contains(v[0].Rule, row.rule) {
			t.Errorf("%s: %v, want %q", row.path, err, row.rule)
		}
		draft, changed, err := demoCampaign(core.CampaignDraft).Amend(spec, now)
		if err != nil || !slices.Equal(changed, []string{row.path}) || !draft.Spec.Equal(spec) {
			t.Errorf("%s of a draft: %v, %v", row.path, changed, err)
		}
	}
	gone := demoSpec()
	gone.SKUs[0].ID, gone.Scope = "limits", core.ScopeCampaign
	_, _, err := demoCampaign(core.CampaignPublished).Amend(gone, now)
	if v := rpcstatus.Violations(err); len(v) != 3 || v[1].Field != "skus[0]" || v[2].Field != "skus.phone-x" {
		t.Errorf("every difference at once: %v", v)
	}
}

// TestAmendByState: what is over keeps its end; what is being published or is settled keeps everything.
func TestAmendByState(t *testing.T) {
	later, shown := demoSpec(), demoSpec()
	later.CloseAt, shown.DisplayJSON = later.CloseAt.Add(time.Hour), `{"title":"new"}`
	open, over := demoSpec().OpenAt, demoSpec().CloseAt
	for _, row := range []struct {
		state core.CampaignState
		now   time.Time
		spec  core.CampaignSpec
		want  error
	}{
		{core.CampaignPublishing, open, shown, core.ErrCampaignState},
		{core.CampaignPaused, open, later, nil},
		{core.CampaignPublished, over, later, core.ErrFrozen},
		{core.CampaignPaused, over, later, core.ErrFrozen},
		{core.CampaignClosed, open, later, core.ErrFrozen},
		{core.CampaignClosed, open, shown, nil},
		{core.CampaignSettled, open, shown, core.ErrCampaignState},
	} {
		if _, _, err := demoCampaign(row.state).Amend(row.spec, row.now); !errors.Is(err, row.want) {
			t.Errorf("%s at %s: %v, want %v", row.state, row.now, err, row.want)
		}
	}
	if next, changed, err := demoCampaign(core.CampaignPublished).Amend(demoSpec(), open); err != nil || len(changed) != 0 || next.Version != 5 {
		t.Errorf("the same file: %v, %v", changed, err)
	}
	other := demoSpec()
	slices.Reverse(other.Cells)
	if next, changed, err := demoCampaign(core.CampaignPublished).Amend(other, open); err != nil || len(changed) != 0 || next.Spec.Cells[0] != "cell-1" {
		t.Errorf("another order of cells: %v, %v", changed, err)
	}
}
