package view

import (
	"time"

	"github.com/hashicorp/go-memdb"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/ids"
)

// Snapshot is the view at one revision. It never changes.
type Snapshot struct {
	state
	key func(store.Kind, string) string
	now time.Time // when it was taken
}

// Revision is etcd's revision that the snapshot holds; 0: nothing was loaded yet.
func (s Snapshot) Revision() int64 { return s.revision }

// Age is how long before the snapshot was taken the view was last known to be
// current; 0 before the first list.
func (s Snapshot) Age() time.Duration {
	if s.revision == 0 {
		return 0
	}
	return max(0, s.now.Sub(s.confirmed))
}

// Quarantined gives the records that cannot be read: key → why. Not to be changed.
func (s Snapshot) Quarantined() map[string]string { return s.quarantined }

// row gives a row by its whole key.
func (s Snapshot) row(kind store.Kind, key string) *row {
	if s.txn == nil {
		return nil
	}
	raw, err := s.txn.First(kind.String(), "id", key)
	if err != nil || raw == nil {
		return nil
	}
	r, _ := raw.(*row)
	return r
}

func one[T any](s Snapshot, kind store.Kind, name string) (T, bool) {
	var zero T
	r := s.row(kind, s.name(kind, name))
	if r == nil {
		return zero, false
	}
	value, ok := r.value.(T)
	return value, ok
}

func (s Snapshot) name(kind store.Kind, name string) string {
	if s.key == nil {
		return ""
	}
	return s.key(kind, name)
}

// many gives the values of a table whose names begin with prefix, in key order.
func many[T any](s Snapshot, kind store.Kind, prefix string) []T {
	if s.txn == nil {
		return nil
	}
	it, err := s.txn.Get(kind.String(), "id_prefix", s.name(kind, prefix))
	return gather[T](it, err, 0)
}

// gather reads an iterator to its end, or to a bound (0: none).
func gather[T any](it memdb.ResultIterator, err error, bound int) []T {
	if err != nil {
		return nil
	}
	var out []T
	for raw := it.Next(); raw != nil && (bound == 0 || len(out) < bound); raw = it.Next() {
		r, _ := raw.(*row)
		if value, ok := r.value.(T); ok {
			out = append(out, value)
		}
	}
	return out
}

// Cell gives one cell.
func (s Snapshot) Cell(id ids.CellID) (core.Cell, bool) {
	return one[core.Cell](s, store.KindCell, string(id))
}

// Cells gives every cell in order of ids.
func (s Snapshot) Cells() []core.Cell { return many[core.Cell](s, store.KindCell, "") }

// CellsByID gives every cell by its id.
func (s Snapshot) CellsByID() map[ids.CellID]core.Cell {
	out := map[ids.CellID]core.Cell{}
	for _, c := range s.Cells() {
		out[c.Spec.ID] = c
	}
	return out
}

// Instances gives a cell's processes that hold a lease, in order of ids.
func (s Snapshot) Instances(cell ids.CellID) []core.Instance {
	return many[core.Instance](s, store.KindInstance, string(cell)+"/")
}

// CellState gives a cell's state as people read it: an ACTIVE cell without a
// process of its group is SUSPECT.
func (s Snapshot) CellState(c core.Cell) core.CellState {
	if c.State != core.CellActive {
		return c.State
	}
	for _, i := range s.Instances(c.Spec.ID) {
		if i.Group == c.InstanceGroup {
			return core.CellActive
		}
	}
	return core.CellSuspect
}

// Campaign gives one campaign.
func (s Snapshot) Campaign(id ids.CampaignID) (core.Campaign, bool) {
	return one[core.Campaign](s, store.KindCampaign, string(id))
}

// Campaigns gives every campaign in order of ids.
func (s Snapshot) Campaigns() []core.Campaign {
	return many[core.Campaign](s, store.KindCampaign, "")
}

// Tombstone gives what is left of a deleted campaign.
func (s Snapshot) Tombstone(id ids.CampaignID) (core.Tombstone, bool) {
	return one[core.Tombstone](s, store.KindTombstone, string(id))
}

// Route gives a campaign's route.
func (s Snapshot) Route(id ids.CampaignID) (core.Route, bool) {
	return one[core.Route](s, store.KindRoute, string(id))
}

// Book gives one book.
func (s Snapshot) Book(key core.BookKey) (core.Book, bool) {
	return one[core.Book](s, store.KindBook, key.String())
}

// Books gives a campaign's books in order of SKU ids; every book for "".
func (s Snapshot) Books(campaign ids.CampaignID) []core.Book {
	if campaign == "" {
		return many[core.Book](s, store.KindBook, "")
	}
	return many[core.Book](s, store.KindBook, string(campaign)+"/")
}

// Record gives one journal record.
func (s Snapshot) Record(id string) (core.Record, bool) {
	return one[core.Record](s, store.KindRecord, id)
}

// RecordOf gives the record that holds an adjustment.
func (s Snapshot) RecordOf(adjustmentID string) (core.Record, bool) {
	if s.txn == nil {
		return core.Record{}, false
	}
	raw, err := s.txn.First(store.KindRecord.String(), "adjustment", adjustmentID+"\x00")
	if err != nil || raw == nil {
		return core.Record{}, false
	}
	r, _ := raw.(*row)
	rec, ok := r.value.(core.Record)
	return rec, ok
}

// OpenRecords gives the records with adjustments that no shard has answered,
// oldest first.
func (s Snapshot) OpenRecords() []core.Record {
	if s.txn == nil {
		return nil
	}
	it, err := s.txn.LowerBound(store.KindRecord.String(), "open", ascending(0))
	return gather[core.Record](it, err, 0)
}

// Records gives a campaign's records created before a revision (0: all), newest
// first, at most bound.
func (s Snapshot) Records(campaign ids.CampaignID, before int64, bound int) []core.Record {
	if s.txn == nil {
		return nil
	}
	if before == 0 {
		before = last
	}
	from := append([]byte(string(campaign)+"\x00"), ascending(before-1)...)
	// The index is not unique: memdb keeps the row's id behind the key, and the
	// bound must lie behind every such id.
	it, err := s.txn.ReverseLowerBound(store.KindRecord.String(), "campaign", append(from, 0xff))
	if err != nil {
		return nil
	}
	var out []core.Record
	for raw := it.Next(); raw != nil && len(out) < bound; raw = it.Next() {
		r, _ := raw.(*row)
		rec, ok := r.value.(core.Record)
		if !ok || rec.Key.Campaign != campaign {
			break
		}
		out = append(out, rec)
	}
	return out
}

// Operation gives one operation.
func (s Snapshot) Operation(id string) (core.Operation, bool) {
	return one[core.Operation](s, store.KindOperation, id)
}

// OpenOperations gives the operations that have not ended, oldest first.
func (s Snapshot) OpenOperations() []core.Operation {
	if s.txn == nil {
		return nil
	}
	it, err := s.txn.LowerBound(store.KindOperation.String(), "open", ascending(0))
	return gather[core.Operation](it, err, 0)
}

// Operations gives the operations begun before a revision (0: all), newest first,
// at most bound.
func (s Snapshot) Operations(before int64, bound int) []core.Operation {
	if s.txn == nil {
		return nil
	}
	if before == 0 {
		before = last
	}
	it, err := s.txn.ReverseLowerBound(store.KindOperation.String(), "created", append(ascending(before-1), 0xff))
	return gather[core.Operation](it, err, bound)
}

// Approval gives the approval of an operation.
func (s Snapshot) Approval(id string) (core.Approval, bool) {
	return one[core.Approval](s, store.KindApproval, id)
}

// PendingApprovals gives the approvals that nobody has decided, oldest first.
func (s Snapshot) PendingApprovals() []core.Approval {
	if s.txn == nil {
		return nil
	}
	it, err := s.txn.LowerBound(store.KindApproval.String(), "pending", ascending(0))
	return gather[core.Approval](it, err, 0)
}

// Approvals gives the approvals asked for before a revision (0: all), newest
// first, at most bound.
func (s Snapshot) Approvals(before int64, bound int) []core.Approval {
	if s.txn == nil {
		return nil
	}
	if before == 0 {
		before = last
	}
	it, err := s.txn.ReverseLowerBound(store.KindApproval.String(), "created", append(ascending(before-1), 0xff))
	return gather[core.Approval](it, err, bound)
}

// Token gives one token.
func (s Snapshot) Token(id string) (core.Token, bool) {
	return one[core.Token](s, store.KindToken, id)
}

// Tokens gives every token in order of ids.
func (s Snapshot) Tokens() []core.Token { return many[core.Token](s, store.KindToken, "") }

// Proof gives the proof of a cell at a fence version.
func (s Snapshot) Proof(cell ids.CellID, version int64) (core.Proof, bool) {
	own, found := one[core.Proof](s, store.KindProof, store.ProofName(cell, version))
	if !found {
		return core.Proof{}, false
	}
	return s.whole(own)
}

// whole adds the rows of a proof that stand in its parts; they came before it.
func (s Snapshot) whole(p core.Proof) (core.Proof, bool) {
	return p.Join(func(n int) (core.Proof, bool) {
		return one[core.Proof](s, store.KindProofPart, store.ProofPartName(p.Cell, p.FenceVersion, n))
	})
}

// Proofs gives every proof, by cell and then by version; one whose parts cannot be read
// is left out.
func (s Snapshot) Proofs() []core.Proof {
	var out []core.Proof
	for _, own := range many[core.Proof](s, store.KindProof, "") {
		if p, found := s.whole(own); found {
			out = append(out, p)
		}
	}
	return out
}

// Stock gives the physical stock of a SKU.
func (s Snapshot) Stock(id ids.SKUID) (core.PhysicalStock, bool) {
	return one[core.PhysicalStock](s, store.KindStock, string(id))
}

// Keys gives the states of the signing keys, in order of use and id.
func (s Snapshot) Keys() []core.Key { return many[core.Key](s, store.KindKey, "") }

// Term gives the highest term that was minted.
func (s Snapshot) Term() core.Term {
	t, _ := one[core.Term](s, store.KindTerm, "")
	return t
}

// Restored gives the record that etcd lost its past; false while it has it.
func (s Snapshot) Restored() (core.Restored, bool) {
	return one[core.Restored](s, store.KindRestored, "")
}

// SawCompared tells whether a leader's word that every shard was compared with
// the books came over the watch that runs now. In a listing it would be worth
// nothing: a backup has it too.
func (s Snapshot) SawCompared() bool { return s.sawCompared }

// Leader gives who leads; false while nobody does.
func (s Snapshot) Leader() (core.Leader, bool) { return one[core.Leader](s, store.KindLeader, "") }

// Replicas gives the registered replicas of the control plane, in order of their
// addresses.
func (s Snapshot) Replicas() []core.Replica { return many[core.Replica](s, store.KindReplica, "") }
