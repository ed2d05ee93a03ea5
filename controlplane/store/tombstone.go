package store

import (
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/cellquota/cellquota/controlplane/convert"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/ids"
	storev1 "github.com/cellquota/cellquota/proto/cellquota/store/v1"
)

// Tombstone reads what is left of a deleted campaign.
func (tx *Tx) Tombstone(id ids.CampaignID) (core.Tombstone, bool, error) {
	return fetch(tx, tx.s.keys.tombstone(id), decodeTombstone)
}

// PutTombstone writes it; there is no way to take one back.
func (tx *Tx) PutTombstone(t core.Tombstone) error {
	if err := t.Check(); err != nil {
		return err
	}
	return tx.put(tx.s.keys.tombstone(t.Campaign), encodeTombstone(t))
}

// DropCampaign deletes a campaign's record: a draft, or beside its tombstone.
func (tx *Tx) DropCampaign(id ids.CampaignID) error { return tx.remove(tx.s.keys.campaign(id)) }

func encodeTombstone(t core.Tombstone) proto.Message {
	return &storev1.Tombstone{CampaignId: string(t.Campaign), DeletedAt: convert.Time(t.DeletedAt), OperationId: t.OperationID, Archive: archived(t.Archive)}
}

func decodeTombstone(kv *mvccpb.KeyValue) (core.Tombstone, error) {
	var m storev1.Tombstone
	err := decode(kv.Value, &m)
	return core.Tombstone{
		Campaign: ids.CampaignID(m.GetCampaignId()), DeletedAt: convert.FromTime(m.GetDeletedAt()), OperationID: m.GetOperationId(),
		Archive: fromArchived(m.GetArchive()), ModRevision: kv.ModRevision,
	}, err
}

func (k keys) tombstone(id ids.CampaignID) string { return k.room(KindTombstone) + string(id) }
