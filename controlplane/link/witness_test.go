package link_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/cellquota/cellquota/controlplane/convert"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/link"
	"github.com/cellquota/cellquota/fencing"
	"github.com/cellquota/cellquota/internal/testkit"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// looked is the shards as the leader finds them when it looks itself.
type looked struct {
	mu    sync.Mutex
	shows fencing.Witness
	err   error
	times int
}

func (l *looked) Look(context.Context, core.CellSpec) (fencing.Witness, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.times++
	return l.shows, l.err
}

func (l *looked) find(w fencing.Witness, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shows, l.err, l.times = w, err, 0
}

var phone = fencing.SKU{Campaign: "double-eleven", SKU: "phone-x"}

// at is a shard of this history with the stock row at a version.
func at(identity string, stockVersion int64) fencing.Witness {
	return fencing.Witness{Identity: identity, Version: 1, Stocks: map[fencing.SKU]fencing.Mark{
		phone: {AdjustmentVersion: 1, LastNumber: 1, StockVersion: stockVersion},
	}}
}

func showing(w fencing.Witness) *pb.Hello {
	h := hello("cell-1", "p-1")
	h.Witness, h.ShardIdentity = convert.Witness(w), w.Identity
	return h
}

// saw makes the leader see a shard, by a process that joins and leaves.
func (r *replica) saw(w fencing.Witness) {
	r.t.Helper()
	r.join(showing(w))
}

func (r *replica) cellState() core.CellState {
	r.t.Helper()
	cell, err := r.store.Cell(testkit.Deadline(r.t), "cell-1")
	if err != nil {
		r.t.Fatal(err)
	}
	return cell.State
}

func TestAShardBehindAWitnessMakesItsCellRegressed(t *testing.T) {
	lost := showing(at("1/1", 9))
	lost.Lacks, lost.LacksVersion = "stock version 9, 12 was seen", 1
	for name, c := range map[string]struct {
		hello *pb.Hello
		finds fencing.Witness
	}{
		"backup of the same history":   {showing(at("1/1", 7)), at("1/1", 7)},
		"standby without the tail":     {showing(at("1/2", 8)), at("1/2", 8)},
		"empty directory":              {showing(fencing.Witness{Identity: "2/1", Version: 1}), fencing.Witness{Identity: "2/1", Version: 1}},
		"only its process saw the end": {lost, at("1/1", 9)},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReplica(t, link.Options{}).lead()
			r.saw(at("1/1", 9))
			r.shards.find(c.finds, nil)
			if got := r.dial(c.hello).refused().GetCode(); got != pb.RefusalCode_REFUSAL_CODE_REGRESSED {
				t.Fatalf("refused as %s", got)
			}
			if got := r.cellState(); got != core.CellRegressed {
				t.Errorf("the cell is %s", got)
			}
			written, known, err := r.store.Witness(testkit.Deadline(t), "cell-1")
			if err != nil || !known || written.Stocks[phone].StockVersion != 9 || written.Identity != "1/1" {
				t.Errorf("what recovery has to reach: %+v %t %v", written, known, err)
			}
		})
	}
}

// TestAnotherHistoryThatLacksNothingIsTaken: a standby that had every commit was promoted.
func TestAnotherHistoryThatLacksNothingIsTaken(t *testing.T) {
	r := newReplica(t, link.Options{}).lead()
	r.saw(at("1/1", 9))
	r.shards.find(at("1/2", 9), nil)
	r.join(showing(at("1/2", 9)))
	r.shards.find(fencing.Witness{}, errors.New("not to be asked again"))
	r.join(showing(at("1/2", 10)))
}

// TestAHelloThatWasReadEarlyIsNoProof: another process reported what came after it.
func TestAHelloThatWasReadEarlyIsNoProof(t *testing.T) {
	r := newReplica(t, link.Options{}).lead()
	r.saw(at("1/1", 9))
	r.shards.find(at("1/1", 11), nil)
	r.join(showing(at("1/1", 8)))
	if r.shards.times != 1 {
		t.Errorf("the shard was looked at %d times", r.shards.times)
	}
}

// TestAShardThatCannotBeReadStaysOut: nobody may write by it, and nothing is written down against it.
func TestAShardThatCannotBeReadStaysOut(t *testing.T) {
	r := newReplica(t, link.Options{}).lead()
	r.saw(at("1/1", 9))
	r.shards.find(fencing.Witness{}, errors.New("no route"))
	if got := r.dial(showing(at("1/2", 9))).refused().GetCode(); got != pb.RefusalCode_REFUSAL_CODE_REGRESSED {
		t.Errorf("refused as %s", got)
	}
	if got := r.cellState(); got != core.CellActive {
		t.Errorf("the cell is %s", got)
	}
}

// TestWhatWasSeenOutlivesALeadership: it is written down, and compared by the next leader.
func TestWhatWasSeenOutlivesALeadership(t *testing.T) {
	r := newReplica(t, link.Options{}).lead()
	p := r.join(showing(at("1/1", 9)))
	p.beat(true)
	p.send(&pb.LinkRequest{Kind: &pb.LinkRequest_Report{Report: &pb.Report{FenceVersion: 1, Witness: convert.Witness(at("1/1", 12))}}})
	testkit.Eventually(t, wait, func() error {
		w, _, err := r.store.Witness(testkit.Deadline(t), "cell-1")
		if err == nil && w.Stocks[phone].StockVersion < 12 {
			err = fmt.Errorf("written down: %+v", w)
		}
		return err
	})
	r.abdicate()
	if _, err := r.client.Delete(testkit.Deadline(t), "/cellquota/leader"); err != nil {
		t.Fatal(err)
	}
	r.lead()
	r.shards.find(at("1/1", 11), nil)
	if got := r.dial(showing(at("1/1", 11))).refused().GetCode(); got != pb.RefusalCode_REFUSAL_CODE_REGRESSED {
		t.Errorf("refused as %s", got)
	}
}
