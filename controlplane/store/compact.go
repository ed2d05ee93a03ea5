package store

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cellquota/cellquota/controlplane/core"
)

// Compact gives up etcd's history below a revision, for this leader; what is
// given up further already is no error. Whoever lists or watches from before finds
// ErrCompacted and begins again. core.ErrNotLeader; core.ErrRestored while etcd is
// known to have lost its past, since its history is what shows how. etcd does this
// also while it is out of space. etcd has no compaction under a condition: one that
// loses the lead between the look and the call gives up what was old before.
func (s *Store) Compact(ctx context.Context, leader core.Leader, revision int64) error {
	if why := s.past.loss(); why != "" {
		return core.Restored{Why: why, FoundBy: "this replica"}.Refuses()
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	resp, err := s.kv.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(s.keys.leader()), "=", leader.CreateRevision),
			clientv3.Compare(clientv3.CreateRevision(s.keys.restored()), "=", 0)).
		Then(clientv3.OpGet(s.keys.term())).
		Else(clientv3.OpGet(s.keys.restored())).
		Commit()
	if err != nil {
		return readError("compact", err)
	}
	if !resp.Succeeded {
		if err := s.refusedAsRestored(resp); err != nil {
			return err
		}
	}
	if !resp.Succeeded || leader.CreateRevision == 0 {
		return fmt.Errorf("%w: term %d", core.ErrNotLeader, leader.Term.Count)
	}
	if _, err := s.client.Compact(ctx, revision); err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		return readError(fmt.Sprintf("compact at revision %d", revision), err)
	}
	return nil
}
