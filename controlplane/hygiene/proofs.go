package hygiene

import (
	"context"
	"fmt"
	"time"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/reclaim"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/ids"
)

// dueProofs names the proofs that nobody needs: see the package comment.
func dueProofs(s view.Snapshot, until time.Time) []core.Proof {
	newest, openBelow := map[ids.CellID]int64{}, map[ids.CellID]int64{}
	all := s.Proofs()
	for _, p := range all {
		newest[p.Cell] = max(newest[p.Cell], p.FenceVersion)
	}
	for _, r := range s.OpenRecords() {
		for _, a := range r.Adjustments {
			if lowest, known := openBelow[a.Cell]; a.Open() && (!known || a.FenceVersion < lowest) {
				openBelow[a.Cell] = a.FenceVersion
			}
		}
	}
	var due []core.Proof
	for _, p := range all {
		cell, known := s.Cell(p.Cell)
		lowest, open := openBelow[p.Cell]
		switch {
		case !known || p.FenceVersion >= newest[p.Cell] || !p.FencedAt.Before(until):
		case named(cell, p) || open && lowest < p.FenceVersion || !accounted(s, p):
		default:
			due = append(due, p)
		}
	}
	return due
}

// named tells whether the cell stands on the proof.
func named(c core.Cell, p core.Proof) bool {
	return c.FenceVersion == p.FenceVersion || c.ProofID == core.ProofID(p.Cell, p.FenceVersion)
}

// accounted tells whether nobody has to look at what the proof sealed any more:
// of each SKU it was booked back, or the book is settled or gone.
func accounted(s view.Snapshot, p core.Proof) bool {
	for _, sealed := range p.Sealed {
		book, known := s.Book(sealed.Key)
		if sealed.Units.IsZero() || !known || book.Settled {
			continue
		}
		id := reclaim.SealID(p.Cell, p.FenceVersion, sealed.Key)
		if record, booked := s.Record(id); !booked || record.Find(id) < 0 {
			return false
		}
	}
	return true
}

// proofs removes proofs, if their cells do not stand on them now either.
func (p *Pruner) proofs(ctx context.Context, leader core.Leader, proofs []core.Proof) error {
	removed := 0
	_, err := p.d.Store.Update(ctx, "remove replaced proofs", func(tx *store.Tx) error {
		removed = 0
		if err := tx.Lead(leader); err != nil {
			return err
		}
		for _, proof := range proofs {
			_, there, err := tx.Proof(proof.Cell, proof.FenceVersion)
			if err != nil {
				return err
			}
			cell, known, err := tx.Cell(proof.Cell)
			if err != nil {
				return err
			}
			if !there || !known || named(cell, proof) {
				continue
			}
			if err := tx.DropProof(proof.Cell, proof.FenceVersion); err != nil {
				return err
			}
			removed++
		}
		if removed == 0 {
			return nil
		}
		return tx.Audit(core.Audit{
			Actor: actor, Method: actor, Subject: "proofs",
			Reason: fmt.Sprintf("%d proofs that a later fence replaced", removed),
		})
	})
	if err == nil {
		p.removed.WithLabelValues(store.KindProof.String()).Add(float64(removed))
	}
	return err
}
