package planner_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/intent"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

func asked(op string) intent.Change {
	return intent.Change{Campaign: "c", OperationID: op, Reason: "a test"}
}

// TestACellJoins: a cell that joins a campaign on sale is told the rules without a bucket, stands in every
// book with 0 units and no number, and no bucket moves; a next leader finishes what the first left.
func TestACellJoins(t *testing.T) {
	r := newRig(t)
	r.provision(5)
	r.lead()
	for i := range 5 {
		r.link(ids.CellID(fmt.Sprintf("cell-%d", i+1)))
	}
	r.draft("c", 4, "s", "t")
	r.publish("c", "op")
	r.until("op", core.OperationDone)
	before, _ := r.view.Snapshot().Route("c")
	r.stopLead() // the intent waits for a leader
	joined, err := r.intent.AddCell(testkit.Deadline(t), who, asked("join"), "cell-5")
	if err != nil || joined.Version != 4 {
		t.Fatalf("version %d, %v", joined.Version, err)
	}
	r.lead()
	r.link("cell-5")
	testkit.Eventually(t, wait, func() (err error) {
		for _, book := range r.view.Snapshot().Books("c") {
			if a, held := book.Allocation("cell-5"); !held || !a.Granted.IsZero() || a.LastNumber != 0 || a.FenceVersion != 1 {
				return fmt.Errorf("book %s: allocation %+v, %v", book.Key, a, held)
			}
		}
		r.cells.read("cell-5", func(s *shard) {
			if rules := s.rules["c"]; rules.GetVersion() != 4 || len(rules.GetBuckets()) != 0 {
				err = fmt.Errorf("the cell has version %d with buckets %v", rules.GetVersion(), rules.GetBuckets())
			}
		})
		return err
	})
	s := r.view.Snapshot()
	after, _ := s.Route("c")
	if after.ModRevision != before.ModRevision {
		t.Error("the route changed")
	}
	for _, key := range []core.BookKey{{Campaign: "c", SKU: "s"}, {Campaign: "c", SKU: "t"}} {
		if rec, known := s.Record(core.JoinRecordID(key, 4)); !known || len(rec.Adjustments) != 0 {
			t.Errorf("%s: record %+v, %v", key, rec, known)
		}
		if book, _ := s.Book(key); book.Version != 2 || book.Reserve.Int64() != 400 {
			t.Errorf("%s: version %d, reserve %s", key, book.Version, book.Reserve)
		}
	}
	testkit.Hold(t, 100*time.Millisecond, "five ticks: the books are left alone")
	if book, _ := r.view.Snapshot().Book(core.BookKey{Campaign: "c", SKU: "s"}); book.Version != 2 {
		t.Errorf("the book moved on to version %d", book.Version)
	}
}

// TestCellsAreToldOfALife: pause of all and of one, resume and a later end each reach a cell as the next
// version of its rules.
func TestCellsAreToldOfALife(t *testing.T) {
	r := onSale(t)
	ctx := testkit.Deadline(t)
	told := func(version int64, want func(*pb.CampaignRules) bool) {
		t.Helper()
		testkit.Eventually(t, wait, func() (err error) {
			r.cells.read("cell-2", func(s *shard) {
				if rules := s.rules["c"]; rules.GetVersion() != version || !want(rules) {
					err = fmt.Errorf("want version %d, the cell has %v", version, rules)
				}
			})
			return err
		})
	}
	do := func(c core.Campaign, err error) core.Campaign {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	do(r.intent.PauseCampaign(ctx, who, asked("p1"), ""))
	told(4, func(rules *pb.CampaignRules) bool { return rules.GetState() == pb.CampaignState_CAMPAIGN_STATE_PAUSED })
	do(r.intent.PauseCampaign(ctx, who, asked("p2"), "s"))
	told(5, func(rules *pb.CampaignRules) bool { return len(rules.GetPausedSkus()) == 1 })
	do(r.intent.ResumeCampaign(ctx, who, asked("p3"), ""))
	told(6, func(rules *pb.CampaignRules) bool {
		return rules.GetState() == pb.CampaignState_CAMPAIGN_STATE_PUBLISHED && len(rules.GetPausedSkus()) == 1
	})
	c := do(r.intent.ResumeCampaign(ctx, who, asked("p4"), "s"))
	told(7, func(rules *pb.CampaignRules) bool { return len(rules.GetPausedSkus()) == 0 })
	spec := c.Spec
	spec.CloseAt = spec.CloseAt.Add(time.Hour)
	amended, err := r.intent.UpdateCampaign(ctx, who, asked("p5"), spec, "the file")
	if err != nil || len(amended.Changed) != 1 {
		t.Fatal(amended, err)
	}
	told(8, func(rules *pb.CampaignRules) bool { return rules.GetSpec().GetCloseAt().AsTime().Equal(spec.CloseAt) })
}
