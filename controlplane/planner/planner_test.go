package planner_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/planner"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

var demoKey = core.BookKey{Campaign: "c", SKU: "s"}

// on sale: the demo's campaign published over four cells.
func onSale(t *testing.T) *rig {
	t.Helper()
	r := newRig(t)
	r.provision(4)
	r.lead()
	for i := range 4 {
		r.link(ids.CellID(fmt.Sprintf("cell-%d", i+1)))
	}
	r.draft("c", 4, "s")
	r.publish("c", "op")
	r.until("op", core.OperationDone)
	return r
}

func TestPublish(t *testing.T) {
	r := onSale(t)
	op := r.until("op", core.OperationDone)
	var steps []string
	for _, s := range op.Steps {
		steps = append(steps, s.Name)
	}
	want := []string{core.StepRoute, core.StepBooks, core.StepRules, core.StepGrants, core.StepReady, core.StepPublished, core.StepOnSale}
	if !slices.Equal(steps, want) {
		t.Errorf("steps %v, want %v", steps, want)
	}
	s := r.view.Snapshot()
	campaign, _ := s.Campaign("c")
	book, _ := s.Book(demoKey)
	stock, _ := s.Stock("s")
	if campaign.State != core.CampaignPublished || campaign.Version != 3 || campaign.PublishedAt.IsZero() || stock.Limits["c"].Int64() != 10_000 {
		t.Errorf("campaign %s in version %d, stock %v", campaign.State, campaign.Version, stock.Limits)
	}
	if book.Reserve.Int64() != 400 || book.Allocated() != 9_600 {
		t.Errorf("reserve %s, allocated %d", book.Reserve, book.Allocated())
	}
	for i := range 4 {
		id := ids.CellID(fmt.Sprintf("cell-%d", i+1))
		r.cells.read(id, func(sh *shard) {
			rules := sh.rules["c"]
			if sh.granted[demoKey] != 2_400 || rules.GetVersion() != 3 || rules.GetState() != pb.CampaignState_CAMPAIGN_STATE_PUBLISHED || rules.GetPublishedAtMs() == 0 || len(rules.GetBuckets()) != 1 {
				t.Errorf("%s is granted %d with rules %v", id, sh.granted[demoKey], rules)
			}
			if grant := core.FirstGrantID(demoKey, id); sh.log[0] != "rules/c/2" || slices.Index(sh.log, grant) < 1 {
				t.Errorf("%s was sent %v: rules come before units", id, sh.log)
			}
		})
	}
	if open := s.OpenRecords(); len(open) != 0 {
		t.Errorf("open records %v", open)
	}
}

// Nothing is sent, and nothing is on sale, while a cell of the campaign is silent;
// the operation says which.
func TestPublishWaitsForEveryCellAndEdge(t *testing.T) {
	r := newRig(t)
	r.provision(2)
	r.lead()
	r.link("cell-1")
	r.edges.behind = []string{"edge e1"}
	r.draft("c", 2, "s")
	r.publish("c", "op")
	r.at("op", core.StepRules)
	if op, _ := r.view.Snapshot().Operation("op"); !strings.Contains(op.Detail, "cell-2") {
		t.Errorf("the detail is %q", op.Detail)
	}
	r.link("cell-2")
	r.at("op", core.StepReady)
	if c, _ := r.view.Snapshot().Campaign("c"); c.State != core.CampaignPublishing {
		t.Errorf("the campaign is %s before an edge has it", c.State)
	}
	r.edges.mu.Lock()
	r.edges.behind = nil
	r.edges.mu.Unlock()
	r.planner.Wake()
	r.until("op", core.OperationDone)
}

// A leader that dies at any step of a publish: the next one finishes it, and
// every number and unit is as if nothing had happened.
func TestPublishGoesOnUnderTheNextLeader(t *testing.T) {
	for _, step := range []string{core.StepRules, core.StepGrants, core.StepReady} {
		t.Run(step, func(t *testing.T) {
			r := newRig(t)
			r.provision(2)
			r.lead()
			both := []ids.CellID{"cell-1", "cell-2"}
			switch step {
			case core.StepRules:
				r.link("cell-1")
			case core.StepGrants:
				r.link("cell-1")
				s := r.cells.connect("cell-2") // never compared: rules go out, units do not
				_ = s
			case core.StepReady:
				r.edges.behind = []string{"edge e1"}
				r.link("cell-1")
				r.link("cell-2")
			}
			r.draft("c", 2, "s", "s2")
			r.publish("c", "op")
			r.at("op", step)
			r.lead()
			r.edges.mu.Lock()
			r.edges.behind = nil
			r.edges.mu.Unlock()
			for _, id := range both {
				r.link(id)
			}
			r.until("op", core.OperationDone)
			for _, sku := range []ids.SKUID{"s", "s2"} {
				key := core.BookKey{Campaign: "c", SKU: sku}
				for _, id := range both {
					r.cells.read(id, func(s *shard) {
						if s.granted[key] != 4_800 || s.last[key] != 1 {
							t.Errorf("%s holds %d of %s at number %d", id, s.granted[key], key, s.last[key])
						}
					})
				}
			}
		})
	}
}

// two campaigns that do not fit one stock; the second ends in DRAFT and
// has given back what it took, and no cell was told.
func TestASKUThatDoesNotFitEndsInDraft(t *testing.T) {
	r := newRig(t)
	r.provision(1)
	r.lead()
	r.link("cell-1")
	r.draft("c", 1, "a", "s")
	r.draft("d", 1, "b", "s")
	// Both are begun before either has taken anything: the early check of both passes.
	r.stopLead()
	r.publish("c", "op-c")
	r.publish("d", "op-d")
	r.lead()
	r.link("cell-1")
	first := r.until("op-c", core.OperationDone)
	second := r.until("op-d", core.OperationFailed)
	if first.State != core.OperationDone || !strings.Contains(second.Detail, "physical stock") {
		t.Errorf("operations: %s, %s: %s", first.State, second.State, second.Detail)
	}
	s := r.view.Snapshot()
	d, _ := s.Campaign("d")
	_, routed := s.Route("d")
	stockS, _ := s.Stock("s")
	stockB, _ := s.Stock("b")
	if d.State != core.CampaignDraft || routed || len(s.Books("d")) != 0 || len(s.Records("d", 0, 9)) != 0 || len(stockS.Limits) != 1 || len(stockB.Limits) != 0 {
		t.Errorf("campaign d is %s, routed %v, %d books, limits of s %v, of b %v", d.State, routed, len(s.Books("d")), stockS.Limits, stockB.Limits)
	}
	r.cells.read("cell-1", func(sh *shard) {
		if sh.rules["d"] != nil {
			t.Error("a cell was told of a campaign that was given up")
		}
	})
	// With the stock free again the same draft publishes.
	_, err := r.store.Update(testkit.Deadline(t), "settle c", func(tx *store.Tx) error {
		stock, _, err := tx.Stock("s")
		if err != nil {
			return err
		}
		next, _ := stock.GiveBack("c")
		return tx.PutStock(next)
	})
	if err != nil {
		t.Fatal(err)
	}
	r.publish("d", "op-d2")
	r.until("op-d2", core.OperationDone)
}

// K23 end to end: a top-up reaches the shard once, in its number's order,
// whatever is lost on the way.
func TestTopUpsReachTheShardOnceAndInOrder(t *testing.T) {
	r := onSale(t)
	r.cells.set("cell-1", func(s *shard) { s.deaf = true }) // applies, answers nothing
	for i := range 3 {
		r.topUp(fmt.Sprint("a", i), "cell-1", 10)
	}
	testkit.Eventually(t, wait, func() (err error) {
		r.cells.read("cell-1", func(s *shard) {
			if n := count(s.log, "a0"); n < 3 {
				err = fmt.Errorf("a0 was sent %d times", n)
			}
			if count(s.log, "a1") > 0 {
				t.Error("a1 was sent before a0 was answered")
			}
		})
		return err
	})
	r.cells.set("cell-1", func(s *shard) { s.deaf = false })
	for i := range 3 {
		if a := r.settled(fmt.Sprint("a", i)); a.State != core.StateDone || a.Outcome != core.OutcomeApplied || a.Number != int64(i+2) {
			t.Errorf("a%d is %s/%s under number %d", i, a.State, a.Outcome, a.Number)
		}
	}
	r.cells.read("cell-1", func(s *shard) {
		if s.granted[demoKey] != 2_430 || s.last[demoKey] != 4 {
			t.Errorf("the shard holds %d at number %d", s.granted[demoKey], s.last[demoKey])
		}
	})
	book, _ := r.view.Snapshot().Book(demoKey)
	if book.Reserve.Int64() != 370 {
		t.Errorf("reserve %s", book.Reserve)
	}
}

func count(log []string, id string) (n int) {
	for _, l := range log {
		if l == id {
			n++
		}
	}
	return n
}

// A grant that was booked and not sent when the cell is fenced is never sent.
func TestNothingIsSentAcrossAFence(t *testing.T) {
	r := onSale(t)
	r.cells.disconnect("cell-1")
	r.topUp("a0", "cell-1", 10)
	_, err := r.store.Update(testkit.Deadline(t), "fence", func(tx *store.Tx) error {
		c, _, err := tx.Cell("cell-1")
		if err != nil {
			return err
		}
		c.State, c.FenceVersion, c.Version = core.CellFencing, 2, c.Version+1
		return tx.PutCell(c)
	})
	if err != nil {
		t.Fatal(err)
	}
	r.cells.set("cell-1", func(s *shard) { s.log = nil })
	r.link("cell-1") // a zombie: its stream should not be there, and its facts agree
	r.topUp("b0", "cell-2", 10)
	r.settled("b0") // the loop went round with the zombie linked
	r.cells.read("cell-1", func(s *shard) {
		if count(s.log, "a0") != 0 {
			t.Errorf("a fenced cell was sent %v", s.log)
		}
	})
}

// The shard voids or refuses: the units go back to the reserve and the number is
// used up.
func TestAVoidedGrantGoesBack(t *testing.T) {
	r := onSale(t)
	r.cells.set("cell-1", func(s *shard) { s.applied["a0"] = pb.AdjustmentOutcome_ADJUSTMENT_OUTCOME_VOIDED })
	r.topUp("a0", "cell-1", 10)
	if a := r.settled("a0"); a.State != core.StateVoided {
		t.Errorf("a0 is %s", a.State)
	}
	testkit.Eventually(t, wait, func() error {
		if book, _ := r.view.Snapshot().Book(demoKey); book.Reserve.Int64() != 400 || book.Check() != nil {
			return fmt.Errorf("reserve %s", book.Reserve)
		}
		return nil
	})
}

// Only the cell of an adjustment can say what became of it: another one's word, by
// a mistake or by malice, would give units back that the shard has.
func TestAnotherCellsAnswerIsRefused(t *testing.T) {
	r := onSale(t)
	r.cells.set("cell-1", func(s *shard) { s.deaf = true }) // applies, answers nothing
	r.topUp("a0", "cell-1", 10)
	stranger, _ := r.cells.Reporter("cell-2")
	err := r.planner.OnDirectiveResult(testkit.Deadline(t), "cell-2", stranger, &pb.DirectiveResult{
		DirectiveId: "a0", Done: true, Outcome: pb.AdjustmentOutcome_ADJUSTMENT_OUTCOME_VOIDED,
	})
	if !errors.Is(err, core.ErrBroken) {
		t.Errorf("%v, want ErrBroken", err)
	}
	r.cells.set("cell-1", func(s *shard) { s.deaf = false })
	if a := r.settled("a0"); a.Outcome != core.OutcomeApplied {
		t.Errorf("a0 is %s/%s", a.State, a.Outcome)
	}
}

// A shard that knows a number, an adjustment or a fence version that etcd does
// not: nothing is granted to anybody any more.
func TestARestoredEtcdGrantsNothing(t *testing.T) {
	r := onSale(t)
	r.cells.set("cell-1", func(s *shard) { s.last[demoKey], s.granted[demoKey] = 7, 2_400 })
	s := r.cells.connect("cell-1")
	if err := r.raise("cell-1", s.stream); !errors.Is(err, core.ErrRestored) {
		t.Fatalf("%v, want ErrRestored", err)
	}
	if why := r.planner.Restored(); !strings.Contains(why, "number 7") {
		t.Errorf("the reason is %q", why)
	}
	r.restored()
	r.lead() // another leader's memory is new; the record is not
	stream := r.cells.connect("cell-2").stream
	testkit.Eventually(t, wait, func() error {
		if err := r.raise("cell-2", stream); !errors.Is(err, core.ErrRestored) {
			return fmt.Errorf("the next leader compares cell-2: %w, want ErrRestored", err)
		}
		return nil
	})
	if _, err := r.tryTopUp("a0", "cell-2", 10); !errors.Is(err, core.ErrRestored) {
		t.Fatalf("a top-up by hand: %v, want ErrRestored", err)
	}
	r.draft("d", 4, "other")
	r.publish("d", "op-d")
	r.cells.read("cell-2", func(sh *shard) {
		if count(sh.log, "a0") != 0 || sh.granted[core.BookKey{Campaign: "d", SKU: "other"}] != 0 {
			t.Errorf("cell-2 was sent %v", sh.log)
		}
	})
}

func TestTermOfAnotherLeaderIsRefused(t *testing.T) {
	r := onSale(t)
	m := &pb.TermRaised{Term: &pb.Term{Count: r.leader.Term.Count, Id: "another"}, FenceVersion: 1}
	if err := r.planner.OnTermRaised(testkit.Deadline(t), "cell-1", planner.Reporter{Stream: 99}, m); !errors.Is(err, core.ErrNotLeader) {
		t.Fatalf("%v, want ErrNotLeader", err)
	}
}

// Rules that a cell refuses are sent again after a while, not in a circle.
func TestRefusedRulesAreSentAgainSlowly(t *testing.T) {
	r := newRig(t)
	r.provision(1)
	r.lead()
	s := r.cells.connect("cell-1")
	r.cells.set("cell-1", func(sh *shard) { sh.refuse = "TOKEN is not served" })
	if err := r.raise("cell-1", s.stream); err != nil {
		testkit.Eventually(t, wait, func() error { return r.raise("cell-1", s.stream) })
	}
	r.draft("c", 1, "s")
	r.publish("c", "op")
	r.at("op", core.StepRules)
	testkit.Hold(t, 350*1e6, "rules are refused meanwhile")
	var sent int
	r.cells.read("cell-1", func(sh *shard) { sent = count(sh.log, "rules/c/2") })
	if sent < 2 || sent > 8 {
		t.Errorf("refused rules were sent %d times within about 0.4 s at one per 0.1 s", sent)
	}
	r.cells.set("cell-1", func(sh *shard) { sh.refuse = "" })
	r.until("op", core.OperationDone)
}

// Operations of other kinds go to the driver, one that has ended does not.
func TestOperationsAreDriven(t *testing.T) {
	r := newRig(t)
	r.lead()
	put := func(id string, state core.OperationState) {
		_, err := r.store.Update(testkit.Deadline(t), "put", func(tx *store.Tx) error {
			if _, _, err := tx.Operation(id); err != nil {
				return err
			}
			return tx.PutOperation(core.Operation{ID: id, Kind: core.OperationFence, Subject: "cell-1", State: state})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	put("ended", core.OperationDone)
	put("open", core.OperationPending)
	testkit.Eventually(t, wait, func() error {
		r.operations.mu.Lock()
		defer r.operations.mu.Unlock()
		if r.operations.asked["open"] < 2 || r.operations.asked["ended"] != 0 {
			return fmt.Errorf("asked %v", r.operations.asked)
		}
		return nil
	})
}

// close_at has passed: the campaign says so, and cells are told.
func TestOverIsClosed(t *testing.T) {
	r := onSale(t)
	_, err := r.store.Update(testkit.Deadline(t), "shorten", func(tx *store.Tx) error {
		c, _, err := tx.Campaign("c")
		if err != nil {
			return err
		}
		c.Spec.CloseAt = c.Spec.OpenAt.Add(1e9)
		c.Spec.Permits.ClaimFrom = c.Spec.OpenAt
		return tx.PutCampaign(c)
	})
	if err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, wait, func() (err error) {
		r.cells.read("cell-3", func(s *shard) {
			if state := s.rules["c"].GetState(); state != pb.CampaignState_CAMPAIGN_STATE_CLOSED {
				err = fmt.Errorf("the cell has %s", state)
			}
		})
		return err
	})
}

// Cancelled: cells are told with the version that closed the campaign, since they close unpaid orders and give
// the money of paid ones back by it; a campaign that was only closed never says so.
func TestCellsAreToldOfACancelling(t *testing.T) {
	r := onSale(t)
	told := func(version int64, cancelled bool) {
		t.Helper()
		testkit.Eventually(t, wait, func() (err error) {
			r.cells.read("cell-3", func(s *shard) {
				rules := s.rules["c"]
				if rules.GetVersion() != version || rules.GetState() != pb.CampaignState_CAMPAIGN_STATE_CLOSED || rules.GetCancelled() != cancelled {
					err = fmt.Errorf("the cell has version %d, %s, cancelled %t", rules.GetVersion(), rules.GetState(), rules.GetCancelled())
				}
			})
			return err
		})
	}
	change := func(next func(core.Campaign) (core.Campaign, bool, error)) {
		t.Helper()
		if _, err := r.store.Update(testkit.Deadline(t), "end", func(tx *store.Tx) error {
			c, _, err := tx.Campaign("c")
			if err != nil {
				return err
			}
			if c, _, err = next(c); err != nil {
				return err
			}
			return tx.PutCampaign(c)
		}); err != nil {
			t.Fatal(err)
		}
	}
	change(func(c core.Campaign) (core.Campaign, bool, error) { return c.Step(core.EventClose) })
	told(4, false)
	change(func(c core.Campaign) (core.Campaign, bool, error) { return c.Cancel("op-2") })
	told(5, true)
}
