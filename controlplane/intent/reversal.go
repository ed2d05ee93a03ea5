package intent

import (
	"context"
	"errors"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
)

// ReverseEntry asks for a REVERSAL of the ledger entry that a finding names. It waits for a second person:
// nothing is written before. The operation is the answer; validate only answers none.
func (s *Service) ReverseEntry(ctx context.Context, who Caller, id string, r core.Reversal, reason string, validateOnly bool) (core.Operation, error) {
	parameters := core.Digest("reverse", r.Finding, r.Incident)
	var out core.Operation
	revision, err := s.Store.Update(ctx, "reverse "+r.Finding, func(tx *store.Tx) error {
		op, begun, err := tx.Operation(id)
		if err != nil || begun {
			out = op
			return errors.Join(err, op.SameParameters(parameters))
		}
		if validateOnly {
			return nil
		}
		out, err = s.ask(tx, who, core.Operation{
			ID: id, Kind: core.OperationReverse, Subject: r.Subject(), State: core.OperationPending, Step: core.StepReverse,
			Actor: who.Name, Reason: reason, StartedAt: tx.Now(), Parameters: parameters,
		})
		return errors.Join(err, tx.PutOperation(out), tx.Audit(who.audit(id, "finding "+r.Finding, "reverse, incident "+r.Incident+": "+reason)))
	})
	if err == nil {
		s.visible(ctx, revision)
	}
	return out, err
}
