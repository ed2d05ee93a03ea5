package store

import (
	"errors"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/cellquota/cellquota/controlplane/convert"
	"github.com/cellquota/cellquota/controlplane/core"
	storev1 "github.com/cellquota/cellquota/proto/cellquota/store/v1"
)

func encodeKey(k core.Key) proto.Message {
	return &storev1.Key{
		Info: convert.Key(k), NotBefore: convert.Time(k.NotBefore),
		RotateOperation: k.RotatedBy, RotateParameters: k.RotatedWith, RevokeOperation: k.RevokedBy,
	}
}

func decodeKey(kv *mvccpb.KeyValue) (core.Key, error) {
	var m storev1.Key
	err := decode(kv.Value, &m)
	return core.Key{
		Use: m.GetInfo().GetUse(), KID: m.GetInfo().GetKid(), State: core.KeyState(m.GetInfo().GetState()), NotBefore: convert.FromTime(m.GetNotBefore()),
		RotatedBy: m.GetRotateOperation(), RotatedWith: m.GetRotateParameters(), RevokedBy: m.GetRevokeOperation(), ModRevision: kv.ModRevision,
	}, err
}

// Keys reads every key of a use, and makes the commit conditional on none having
// changed or come since. One that cannot be read is an error: who decides without
// it could leave nobody to sign.
func (tx *Tx) Keys(use string) ([]core.Key, error) {
	room := tx.s.keys.room(KindKey) + use + "/"
	resp, err := tx.ask(room, clientv3.WithPrefix())
	if err != nil {
		return nil, readError("read keys", err)
	}
	tx.cmps = append(tx.cmps, clientv3.Compare(clientv3.ModRevision(room), "<", resp.Header.Revision+1).WithPrefix())
	var keys []core.Key
	for _, kv := range resp.Kvs {
		k, err := checked(decodeKey(kv))
		if err != nil {
			return nil, readError("read "+string(kv.Key), err)
		}
		keys = append(keys, k)
	}
	return keys, nil
}

// PutKey writes a key's state; Keys was read in the same transaction.
func (tx *Tx) PutKey(k core.Key) error {
	if err := k.Check(); err != nil {
		return err
	}
	key := tx.s.keys.key(k.Use, k.KID)
	_, err := tx.get(key)
	return errors.Join(err, tx.put(key, encodeKey(k)))
}
