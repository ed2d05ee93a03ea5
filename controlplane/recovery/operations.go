package recovery

import (
	"context"
	"errors"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/view"
)

// goesOn tells whether an operation that etcd has as open may be carried on after a
// recovery. Those of a cell find out from its shard how far they are; a publish, a
// deletion and a cancelling that has begun are the same whoever repeats their steps.
// Others move units, or wait for a word that was perhaps given and acted on in the
// past that was lost: they end, and whoever still wants them orders them again.
func goesOn(op core.Operation) bool {
	switch op.Kind {
	case core.OperationFence, core.OperationReclaim, core.OperationRestore, core.OperationPublish, core.OperationDelete,
		core.OperationDrain, core.OperationRetire:
		return true
	case core.OperationCancel, core.OperationWriteOff:
		return len(op.Steps) > 0
	}
	return false
}

const endedByRecovery = "etcd lost its past: whether this was carried out since is not known, and the units are as the shards have them; look, and order it again"

// operations ends the open operations that do not go on, and takes the questions to a
// second person back that were not answered: the answer was perhaps given, and lost.
func (d *Driver) operations(ctx context.Context, leader core.Leader, mine core.Operation, s view.Snapshot) error {
	for _, open := range s.OpenOperations() {
		if open.ID == mine.ID || goesOn(open) {
			continue
		}
		_, err := d.Store.Update(ctx, "end "+open.ID, func(tx *store.Tx) error {
			if _, err := d.mine(tx, leader, mine.ID); err != nil {
				return err
			}
			op, known, err := tx.Operation(open.ID)
			if err != nil || !known || op.State.Terminal() {
				return err
			}
			state := core.OperationFailed
			if len(op.Steps) == 0 && op.NeedsApproval {
				state = core.OperationAborted
			}
			return errors.Join(takeBack(tx, op.ID), tx.PutOperation(op.End(state, endedByRecovery, tx.Now())), tx.Audit(core.Audit{
				Actor: mine.Actor, Method: actor, OperationID: mine.ID, Subject: "operation " + op.ID, Reason: "etcd lost its past while it was open",
			}))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func takeBack(tx *store.Tx, id string) error {
	approval, known, err := tx.Approval(id)
	if err != nil || !known || approval.State.Terminal() {
		return err
	}
	approval, err = approval.Reject(actor, "etcd lost its past", tx.Now())
	return errors.Join(err, tx.PutApproval(approval))
}

// tokensOf bounds the tokens that one transaction revokes.
const tokensOf = 25

// tokens revokes every bearer token that etcd keeps: one that was revoked in the past
// that was lost is valid again in a backup, and nothing tells it from the others. Who
// calls with a certificate, or as an operator of operators_file, is not concerned.
func (d *Driver) tokens(ctx context.Context, leader core.Leader, op core.Operation, s view.Snapshot) error {
	var live []core.Token
	for _, t := range s.Tokens() {
		if t.RevokedAt.IsZero() {
			live = append(live, t)
		}
	}
	for len(live) > 0 {
		page := live[:min(len(live), tokensOf)]
		live = live[len(page):]
		_, err := d.Store.Update(ctx, "revoke tokens", func(tx *store.Tx) error {
			if _, err := d.mine(tx, leader, op.ID); err != nil {
				return err
			}
			for _, t := range page {
				present, known, err := tx.Token(t.ID)
				if err != nil {
					return err
				}
				next, changed := present.Revoke(tx.Now())
				if !known || !changed {
					continue
				}
				err = errors.Join(tx.PutToken(next), tx.Audit(core.Audit{
					Actor: op.Actor, Method: actor, OperationID: op.ID, Subject: "token " + t.ID, Reason: "etcd lost its past: which tokens were revoked since is not known",
				}))
				if err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
