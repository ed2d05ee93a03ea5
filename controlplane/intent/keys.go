package intent

import (
	"context"
	"errors"
	"fmt"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
)

// RotateKey makes a key ACTIVE and puts the one before to RETIRING in the same
// transaction, as core.Rotation says. A repeat gives the key as it is now.
func (s *Service) RotateKey(ctx context.Context, who Caller, in core.Rotation, reason string, validateOnly bool) (core.Key, error) {
	var out core.Key
	revision, err := s.Store.Update(ctx, "rotate key "+in.Use+"/"+in.KID, func(tx *store.Tx) error {
		keys, err := tx.Keys(in.Use)
		if err != nil {
			return err
		}
		var changed []core.Key
		if out, changed, err = in.Rotate(keys, tx.Now()); err != nil || len(changed) == 0 || validateOnly {
			return err
		}
		errs := []error{tx.Audit(who.audit(in.OperationID, "key "+out.Name(), fmt.Sprintf("ACTIVE from %s: %s", out.NotBefore.Format("2006-01-02T15:04:05Z07:00"), reason)))}
		for _, k := range changed {
			errs = append(errs, tx.PutKey(k))
		}
		return errors.Join(errs...)
	})
	if err == nil {
		s.visible(ctx, revision)
	}
	return out, err
}

// RevokeKey makes a key verify nothing. A repeat changes nothing.
func (s *Service) RevokeKey(ctx context.Context, who Caller, use, kid, operationID, reason string, validateOnly bool) (core.Key, error) {
	var out core.Key
	revision, err := s.Store.Update(ctx, "revoke key "+use+"/"+kid, func(tx *store.Tx) error {
		keys, err := tx.Keys(use)
		if err != nil {
			return err
		}
		var changed bool
		if out, changed, err = core.RevokeKey(keys, use, kid, operationID, tx.Now()); err != nil || !changed || validateOnly {
			return err
		}
		return errors.Join(tx.PutKey(out), tx.Audit(who.audit(operationID, "key "+out.Name(), "REVOKED: "+reason)))
	})
	if err == nil {
		s.visible(ctx, revision)
	}
	return out, err
}
