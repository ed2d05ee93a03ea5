package store

import (
	"context"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/cellquota/cellquota/controlplane/convert"
	"github.com/cellquota/cellquota/controlplane/core"
	storev1 "github.com/cellquota/cellquota/proto/cellquota/store/v1"
)

// RegisterReplica puts a replica under its lease. One that was there under an older
// lease (the same address, started again) is written over.
func (s *Store) RegisterReplica(ctx context.Context, r core.Replica) error {
	_, err := s.Update(ctx, "register the replica "+r.Address, func(tx *Tx) error {
		key := tx.s.keys.replica(r.Address)
		if _, err := tx.get(key); err != nil {
			return err
		}
		r.StartedAt = tx.Now()
		return tx.put(key, encodeReplica(r), clientv3.WithLease(clientv3.LeaseID(r.Lease)))
	})
	return err
}

func encodeReplica(r core.Replica) proto.Message {
	return &storev1.Replica{Address: r.Address, ProgramVersion: r.ProgramVersion, StartedAt: convert.Time(r.StartedAt)}
}

func decodeReplica(kv *mvccpb.KeyValue) (core.Replica, error) {
	var m storev1.Replica
	err := decode(kv.Value, &m)
	return core.Replica{
		Address: m.GetAddress(), ProgramVersion: m.GetProgramVersion(), StartedAt: convert.FromTime(m.GetStartedAt()), Lease: kv.Lease,
	}, err
}
