package store

import (
	"context"
	"fmt"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/ids"
)

// proofPart bounds one part of a proof, in bytes: a few of them fit what one commit may
// hold, and one is far below maxValue.
const proofPart = 512 << 10

// StageProof gives a proof as PutProof stores it. One that is too large for a value is
// written in parts first, each in a transaction under the leader, and only its record is
// left to be put: who sees that record finds the parts. Parts of a try that was cut off
// are written over by the next. core.ErrTooLarge beyond core.MaxProofParts.
func (s *Store) StageProof(ctx context.Context, leader core.Leader, p core.Proof) (core.Proof, error) {
	own, parts := p.Split(proofPart)
	if len(parts) == 0 {
		return p, nil
	}
	if len(parts) > core.MaxProofParts {
		return core.Proof{}, fmt.Errorf("%w: proof %s has %d parts, at most %d", core.ErrTooLarge, core.ProofID(p.Cell, p.FenceVersion), len(parts), core.MaxProofParts)
	}
	own.Set = ids.NewOperationID()
	for _, part := range parts {
		part.Set = own.Set
		if err := s.putProofPart(ctx, leader, part); err != nil {
			return core.Proof{}, err
		}
	}
	return own, nil
}

func (s *Store) putProofPart(ctx context.Context, leader core.Leader, part core.Proof) error {
	key := s.keys.room(KindProofPart) + ProofPartName(part.Cell, part.FenceVersion, part.Part)
	_, err := s.Update(ctx, "part of proof "+core.ProofID(part.Cell, part.FenceVersion), func(tx *Tx) error {
		if err := tx.Lead(leader); err != nil {
			return err
		}
		if _, stands, err := tx.Proof(part.Cell, part.FenceVersion); err != nil || stands {
			return err // its parts are not to be touched; whoever puts it finds it
		}
		if err := part.Check(); err != nil {
			return err
		}
		if _, err := tx.get(key); err != nil {
			return err
		}
		return tx.put(key, encodeProof(part))
	})
	return err
}
