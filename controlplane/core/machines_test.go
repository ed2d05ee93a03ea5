package core_test

import (
	"errors"
	"testing"
	"time"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
)

// Every cell of the campaign's table, by a list written by hand.
func TestCampaignTable(t *testing.T) {
	type at struct {
		from core.CampaignState
		e    core.CampaignEvent
	}
	const (
		draft, publishing, published = core.CampaignDraft, core.CampaignPublishing, core.CampaignPublished
		paused, closed, settled      = core.CampaignPaused, core.CampaignClosed, core.CampaignSettled
	)
	want := map[at]core.CampaignState{
		{draft, core.EventPublish}: publishing, {draft, core.EventGiveUp}: draft,
		{publishing, core.EventPublish}: publishing, {publishing, core.EventGiveUp}: draft, {publishing, core.EventPublished}: published,
		{published, core.EventPublished}: published, {published, core.EventPause}: paused, {published, core.EventResume}: published, {published, core.EventClose}: closed,
		{paused, core.EventPause}: paused, {paused, core.EventResume}: published, {paused, core.EventClose}: closed,
		{closed, core.EventClose}: closed, {closed, core.EventSettle}: settled,
		{settled, core.EventSettle}: settled,
	}
	for _, from := range core.CampaignStates() {
		for _, e := range core.CampaignEvents() {
			c := core.Campaign{State: from, Version: 7, OperationID: "op", BookedSKUs: nil}
			next, changed, err := c.Step(e)
			to, allowed := want[at{from, e}]
			switch {
			case !allowed:
				if !errors.Is(err, core.ErrCampaignState) {
					t.Errorf("%s in %s: %v, want ErrCampaignState", e, from, err)
				}
			case err != nil || next.State != to || changed != (to != from):
				t.Errorf("%s in %s: %s, changed %v, %v; want %s", e, from, next.State, changed, err, to)
			case changed != (next.Version == 8):
				t.Errorf("%s in %s: version %d, changed %v", e, from, next.Version, changed)
			}
		}
	}
}

// Every state can be reached from DRAFT, and from every state an end.
func TestCampaignTableHasNoIsland(t *testing.T) {
	reach := func(from core.CampaignState) map[core.CampaignState]bool {
		seen := map[core.CampaignState]bool{from: true}
		for todo := []core.CampaignState{from}; len(todo) > 0; todo = todo[1:] {
			for _, e := range core.CampaignEvents() {
				if next, _, err := (core.Campaign{State: todo[0]}).Step(e); err == nil && !seen[next.State] {
					seen[next.State] = true
					todo = append(todo, next.State)
				}
			}
		}
		return seen
	}
	for _, s := range core.CampaignStates() {
		if s == core.CampaignOpen {
			continue // never stored
		}
		if !reach(core.CampaignDraft)[s] {
			t.Errorf("%s cannot be reached from DRAFT", s)
		}
		if !reach(s)[core.CampaignSettled] {
			t.Errorf("%s can never become SETTLED", s)
		}
	}
}

func TestReadState(t *testing.T) {
	open := time.Date(2026, 11, 11, 0, 0, 0, 0, time.UTC)
	c := core.Campaign{State: core.CampaignPublished, Spec: core.CampaignSpec{OpenAt: open, CloseAt: open.Add(time.Hour)}}
	for _, at := range []struct {
		now  time.Time
		want core.CampaignState
	}{
		{open.Add(-1), core.CampaignPublished},
		{open, core.CampaignOpen},
		{open.Add(time.Hour - 1), core.CampaignOpen},
		{open.Add(time.Hour), core.CampaignClosed},
	} {
		if got := c.ReadState(at.now); got != at.want {
			t.Errorf("at %s: %s, want %s", at.now, got, at.want)
		}
	}
	c.State = core.CampaignPaused
	if got := c.ReadState(open); got != core.CampaignPaused {
		t.Errorf("a paused campaign reads as %s", got)
	}
}

// Every (kind, open state, answer): what the table says, applied to a book.
func TestSettleTable(t *testing.T) {
	type row struct {
		kind    core.AdjustmentKind
		state   core.JournalState
		answer  core.Outcome
		to      core.JournalState
		reserve int64 // of the demo's book after it
	}
	rows := []row{
		{core.KindGrant, core.StateBooked, core.OutcomeApplied, core.StateDone, 400},
		{core.KindGrant, core.StateBooked, core.OutcomeRefused, core.StateVoided, 500},
		{core.KindGrant, core.StateBooked, core.OutcomeVoided, core.StateVoided, 500},
		{core.KindReturn, core.StateProposed, core.OutcomeApplied, core.StateDone, 500},
		{core.KindReturn, core.StateProposed, core.OutcomeRefused, core.StateDone, 400},
		{core.KindReturn, core.StateProposed, core.OutcomeVoided, core.StateVoided, 400},
		{core.KindLimit, core.StateBooked, core.OutcomeApplied, core.StateDone, 400},
	}
	for _, r := range rows {
		a := core.Adjustment{ID: "a", Key: key, Cell: "cell-1", Kind: r.kind, State: r.state, Units: quantity.Must(100), Step: core.Step{FenceVersion: 1, Number: 2}}
		after, effect, err := a.Settle(r.answer)
		if err != nil || after.State != r.to || after.Outcome != r.answer {
			t.Errorf("%s %s answered %s: %s/%s, %v", r.kind, r.state, r.answer, after.State, after.Outcome, err)
			continue
		}
		book, err := demoBook(t).Apply(after, effect)
		if err != nil || book.Reserve.Int64() != r.reserve {
			t.Errorf("%s answered %s: reserve %s, %v; want %d", r.kind, r.answer, book.Reserve, err, r.reserve)
		}
		if again, effect, err := after.Settle(r.answer); err != nil || effect != core.EffectNone || again != after {
			t.Errorf("%s answered %s twice: effect %d, %v", r.kind, r.answer, effect, err)
		}
		for _, other := range core.Outcomes() {
			if other != r.answer {
				if _, _, err := after.Settle(other); !errors.Is(err, core.ErrContradiction) {
					t.Errorf("%s answered %s, then %s: %v, want ErrContradiction", r.kind, r.answer, other, err)
				}
			}
		}
	}
	for _, k := range core.Kinds() {
		for _, s := range core.JournalStates() {
			for _, o := range core.Outcomes() {
				listed := false
				for _, r := range rows {
					listed = listed || r.kind == k && r.state == s && r.answer == o
				}
				a := core.Adjustment{ID: "a", Kind: k, State: s}
				if _, _, err := a.Settle(o); !listed && !s.Terminal() && !errors.Is(err, core.ErrBroken) {
					t.Errorf("%s in %s answered %s: %v, want ErrBroken", k, s, o, err)
				}
			}
		}
	}
}

// two campaigns meet in one stock.
func TestPhysicalStock(t *testing.T) {
	q := quantity.Must
	first, changed, err := core.PhysicalStock{}.Take("phone-x", "a", q(12_000), q(10_000))
	if err != nil || !changed || first.Version != 1 {
		t.Fatalf("first take: %+v, %v, %v", first, changed, err)
	}
	if _, changed, err = first.Take("phone-x", "a", q(12_000), q(10_000)); err != nil || changed {
		t.Errorf("the same take again: changed %v, %v", changed, err)
	}
	if _, _, err = first.Take("phone-x", "b", q(12_000), q(2_001)); !errors.Is(err, core.ErrStockShort) {
		t.Errorf("limits above the stock: %v", err)
	}
	if _, _, err = first.Take("phone-x", "b", q(13_000), q(2_000)); !errors.Is(err, core.ErrStockShort) {
		t.Errorf("another figure while a campaign is unsettled: %v", err)
	}
	second, _, err := first.Take("phone-x", "b", q(12_000), q(2_000))
	if err != nil || second.Check() != nil {
		t.Fatalf("second campaign: %v", err)
	}
	freed, changed := second.GiveBack("a")
	if _, again := freed.GiveBack("a"); !changed || again || len(second.Limits) != 2 {
		t.Errorf("give back: changed %v, again %v, receiver has %d limits", changed, again, len(second.Limits))
	}
	if _, _, err := freed.Take("phone-x", "c", q(12_000), q(10_000)); err != nil {
		t.Errorf("freed units cannot be taken: %v", err)
	}
}

func TestOperationVerbs(t *testing.T) {
	now := time.Date(2026, 11, 11, 0, 0, 0, 0, time.UTC)
	o := core.Operation{ID: "op", Kind: core.OperationPublish, Subject: "c", State: core.OperationPending}
	o = o.Finished("books", "3 books", "rules", now)
	if again := o.Finished("books", "3 books", "rules", now); len(again.Steps) != 1 {
		t.Errorf("a repeated step is listed %d times", len(again.Steps))
	}
	o = o.Waits("rules", "cell-1 is silent")
	if !o.DoneStep("books") || o.DoneStep("rules") || o.Step != "rules" || o.State != core.OperationRunning {
		t.Errorf("operation is %+v", o)
	}
	done := o.End(core.OperationDone, "", now)
	if ended := done.End(core.OperationFailed, "late", now.Add(1)); ended.State != core.OperationDone {
		t.Errorf("an ended operation became %s", ended.State)
	}
	if waits := done.Waits("rules", "x"); waits.State != core.OperationDone {
		t.Error("an ended operation runs again")
	}
}
