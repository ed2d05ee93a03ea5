package planner_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/cellquota/cellquota/controlplane/intent"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// TestACellIsToldThatItIsPaused: each version of a cell's record is told once over each stream, and again
// while no answer came.
func TestACellIsToldThatItIsPaused(t *testing.T) {
	r := newRig(t)
	r.provision(2)
	r.lead()
	r.link("cell-1")
	r.link("cell-2")
	told := func(id ids.CellID, paused bool, reason string, times int) {
		t.Helper()
		testkit.Eventually(t, wait, func() (err error) {
			r.cells.read(id, func(s *shard) {
				n := 0
				var last *pb.CellSwitch
				for _, one := range s.switches {
					if last = one; one.GetPaused() == paused && one.GetReason() == reason {
						n++
					}
				}
				if n < times || last.GetPaused() != paused {
					err = fmt.Errorf("%s was told %v", id, s.switches)
				}
			})
			return err
		})
	}
	told("cell-1", false, "", 1)
	c, err := r.intent.PauseCell(testkit.Deadline(t), who, intent.CellChange{Cell: "cell-1", OperationID: "p", Reason: "drill"})
	if err != nil {
		t.Fatal(err)
	}
	told("cell-1", true, "drill", 1)
	r.cells.read("cell-1", func(s *shard) {
		if last := s.switches[len(s.switches)-1]; last.GetVersion() != c.Version {
			t.Errorf("version %d, the record has %d", last.GetVersion(), c.Version)
		}
	})
	r.cells.set("cell-1", func(s *shard) { s.deaf = true })
	r.link("cell-1") // another stream, whose answers are lost
	told("cell-1", true, "drill", 3)
	r.cells.set("cell-1", func(s *shard) { s.deaf = false })
	told("cell-1", true, "drill", 4)
	var settled int
	r.cells.read("cell-1", func(s *shard) { settled = len(s.switches) })
	testkit.Hold(t, 100*time.Millisecond, "five ticks: an answered switch is not sent again")
	r.cells.read("cell-1", func(s *shard) {
		if len(s.switches) > settled {
			t.Errorf("told %d times, then %d", settled, len(s.switches))
		}
	})
	r.cells.read("cell-2", func(s *shard) {
		for _, one := range s.switches {
			if one.GetPaused() {
				t.Errorf("the other cell was told %v", one)
			}
		}
	})
}
