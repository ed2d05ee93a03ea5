package lottery_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/testkit"
)

// lose writes cell-2 off: nobody can read its entries any more.
func (w *world) lose() {
	w.t.Helper()
	w.update(func(tx *store.Tx) error {
		cell, _, e1 := tx.Cell("cell-2")
		_, _, e2 := tx.Proof("cell-2", 1)
		cell.State, cell.Version = core.CellFenced, cell.Version+1
		return errors.Join(e1, e2, tx.PutCell(cell), tx.PutProof(core.Proof{
			Cell: "cell-2", FenceVersion: 1, Evidence: core.EvidenceAttestedLoss, FencedAt: time.Now().UTC(),
			Attestation: core.Attestation{Operator: "a", Reason: "burnt", Approver: "b", ApprovalReason: "seen", ApprovedAt: time.Now().UTC()},
		}))
	})
}

// A cell is lost for good in the middle of a draw, whose driver dies at any of its effects. Before the
// evidence is kept, the draw is among those who are left, and names the cell; after it the winners are who
// they are, and the lost cell's units stay in the reserve. It always ends.
func TestACellIsLostInTheMiddleOfADraw(t *testing.T) {
	etcd := testkit.Etcd(t, 1)
	without, with := 0, 0
	for n := 1; ; n++ {
		died := false
		ok := t.Run(fmt.Sprintf("effect %d", n), func(t *testing.T) {
			w := newWorld(t, etcd, fmt.Sprintf("/lost-%d", n))
			if died = w.live(n, true); !died {
				return
			}
			w.lose()
			w.lead("cell-1")
			if w.live(1_000, false) {
				t.Fatal("the next leader's driver died too")
			}
			draw, doc := w.drawn(t)
			book, won := w.book(t), w.won(t, "cell-1")
			if won != doc.Cells[0].Winners || book.Allocations[0].Granted.Int64() != won || book.Check() != nil {
				t.Errorf("cell-1: %d entries won, the evidence says %d, book %+v", won, doc.Cells[0].Winners, book)
			}
			switch len(draw.LostCells) {
			case 1:
				without++
				if draw.Entrants != entered || won != units {
					t.Errorf("drawn among those who are left: %+v", draw)
				}
			default:
				with++
				granted := book.Allocations[1].Granted.Int64()
				if draw.Entrants != 2*entered || int64(draw.Ungranted)+granted != doc.Cells[1].Winners || book.Reserve.Int64() != int64(draw.Ungranted) {
					t.Errorf("drawn among all: %+v, book %+v", draw, book)
				}
			}
		})
		if !ok || !died {
			break
		}
	}
	if without == 0 || with == 0 {
		t.Errorf("lost before the evidence %d times, after it %d times: the test looks at one side", without, with)
	}
}
