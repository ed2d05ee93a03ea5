package store

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/ids"
)

// The key grammar, under a prefix (default /cellquota):
//
//	/cells/CELL                 Cell; no lease, no liveness: one ranged compare over
//	                            /cells/ tells a book transaction that no cell changed
//	/instances/CELL/INSTANCE    Instance, under the process's lease
//	/campaigns/CAMPAIGN         Campaign
//	/routes/CAMPAIGN            Route
//	/books/CAMPAIGN/SKU         Book
//	/journal/RECORD             Record
//	/proofs/CELL/VERSION        Proof; VERSION zero-padded to 19 digits
//	/proofparts/CELL/VERSION/N  Proof, a part of one; N from 001
//	/stock/SKU                  PhysicalStock
//	/operations/OPERATION       Operation
//	/approvals/OPERATION        Approval of that operation
//	/tokens/ID                  Token, without its secret
//	/refusals/MINUTE-ID         Refusals: counts of one replica; MINUTE sorts. Not mirrored
//	/archive/NAME               ArchiveIndex; an object that no campaign names. Not mirrored
//	/leader                     Leader, under its lease
//	/replicas/ADDRESS           Replica, under its lease
//	/term                       TermRecord
//	/keys/USE/KID               Key
//	/restored                   Restored; present: etcd lost its past
//	/cluster                    Cluster, the etcd these records were made in, and the last recovery
//	/tombstones/CAMPAIGN        Tombstone
//	/witnesses/CELL             Witness, the highest that was seen of its shard. Not mirrored
//	/compared                   TermRecord, the last term under which every shard was compared
//	/audit/TIME-ID              AuditEvent; TIME sorts
//
// No id has a slash (ids), so a key splits without escapes.
type keys struct{ prefix string }

// Kind says what a key holds.
type Kind uint8

// The kinds, and what Entry.Value is for each.
const (
	KindCell      Kind = iota + 1 // core.Cell
	KindInstance                  // core.Instance
	KindCampaign                  // core.Campaign
	KindRoute                     // core.Route
	KindBook                      // core.Book
	KindRecord                    // core.Record
	KindProof                     // core.Proof
	KindStock                     // core.PhysicalStock
	KindOperation                 // core.Operation
	KindLeader                    // core.Leader
	KindTerm                      // core.Term
	KindKey                       // core.Key
	KindAudit                     // core.Audit; not mirrored
	KindApproval                  // core.Approval
	KindToken                     // core.Token
	KindRefusal                   // core.Audit with Refusals; not mirrored
	KindArchive                   // core.ArchiveIndex; not mirrored
	KindRestored                  // core.Restored
	KindCluster                   // cluster; not mirrored
	KindTombstone                 // core.Tombstone
	KindReplica                   // core.Replica
	KindCompared                  // not mirrored; the view notes that it came
	KindProofPart                 // core.Proof, a part
	KindWitness                   // fencing.Witness; not mirrored
)

// rooms are the folders (or single keys) of each kind.
var rooms = map[Kind]string{
	KindCell: "/cells/", KindInstance: "/instances/", KindCampaign: "/campaigns/", KindRoute: "/routes/", KindBook: "/books/",
	KindRecord: "/journal/", KindProof: "/proofs/", KindStock: "/stock/", KindOperation: "/operations/",
	KindLeader: "/leader", KindTerm: "/term", KindKey: "/keys/", KindAudit: "/audit/", KindApproval: "/approvals/", KindToken: "/tokens/", KindRefusal: "/refusals/", KindArchive: "/archive/",
	KindRestored: "/restored", KindCluster: "/cluster", KindCompared: "/compared", KindReplica: "/replicas/",
	KindTombstone: "/tombstones/", KindProofPart: "/proofparts/", KindWitness: "/witnesses/",
}

// Mirrored tells whether the view keeps the kind.
func (k Kind) Mirrored() bool { return slices.Contains(Mirrored(), k) }

// String is the folder's name.
func (k Kind) String() string { return strings.Trim(rooms[k], "/") }

// Mirrored lists the kinds that the view keeps, in the order in which they are
// loaded.
func Mirrored() []Kind {
	return []Kind{
		KindRestored, KindTerm, KindLeader, KindKey, KindCell, KindInstance, KindCampaign, KindRoute, KindStock, KindBook, KindRecord, KindProofPart, KindProof, KindOperation, KindApproval, KindToken, KindReplica,
		KindTombstone,
	}
}

// single tells whether a kind is one key, not a folder.
func (k Kind) single() bool { return !strings.HasSuffix(rooms[k], "/") }

func (k keys) room(kind Kind) string { return k.prefix + rooms[kind] }

func (k keys) cell(id ids.CellID) string         { return k.room(KindCell) + string(id) }
func (k keys) campaign(id ids.CampaignID) string { return k.room(KindCampaign) + string(id) }
func (k keys) route(id ids.CampaignID) string    { return k.room(KindRoute) + string(id) }
func (k keys) book(key core.BookKey) string      { return k.room(KindBook) + key.String() }
func (k keys) record(id string) string           { return k.room(KindRecord) + id }
func (k keys) stock(id ids.SKUID) string         { return k.room(KindStock) + string(id) }
func (k keys) operation(id string) string        { return k.room(KindOperation) + id }
func (k keys) approval(id string) string         { return k.room(KindApproval) + id }
func (k keys) token(id string) string            { return k.room(KindToken) + id }
func (k keys) key(use, kid string) string        { return k.room(KindKey) + use + "/" + kid }
func (k keys) replica(address string) string     { return k.room(KindReplica) + address }
func (k keys) leader() string                    { return k.room(KindLeader) }
func (k keys) term() string                      { return k.room(KindTerm) }
func (k keys) restored() string                  { return k.room(KindRestored) }
func (k keys) cluster() string                   { return k.room(KindCluster) }

// bookOf reads a book's key back.
func (k keys) bookOf(key string) core.BookKey {
	campaign, sku, _ := strings.Cut(strings.TrimPrefix(key, k.room(KindBook)), "/")
	return core.BookKey{Campaign: ids.CampaignID(campaign), SKU: ids.SKUID(sku)}
}

func (k keys) instance(cell ids.CellID, id string) string {
	return k.room(KindInstance) + string(cell) + "/" + id
}

func (k keys) proof(cell ids.CellID, version int64) string {
	return k.room(KindProof) + ProofName(cell, version)
}

// ProofPartName is the name of a proof's part within its folder.
func ProofPartName(cell ids.CellID, version int64, part int) string {
	return ProofName(cell, version) + fmt.Sprintf("/%03d", part)
}

func (k keys) proofParts(cell ids.CellID, version int64) string {
	return k.room(KindProofPart) + ProofName(cell, version) + "/"
}

// ProofName is a proof's name within its folder; the version sorts.
func ProofName(cell ids.CellID, version int64) string {
	digits := strconv.FormatInt(version, 10)
	return string(cell) + "/" + strings.Repeat("0", max(0, 19-len(digits))) + digits
}

func (k keys) audit(at time.Time, id string) string {
	return k.room(KindAudit) + core.TrailName(at, id)
}

// kind tells what a key holds; 0 for a key of nobody.
func (k keys) kind(key string) Kind {
	rest, ours := strings.CutPrefix(key, k.prefix)
	if !ours {
		return 0
	}
	for kind, room := range rooms {
		if name, found := strings.CutPrefix(rest, room); found && (strings.HasSuffix(room, "/") == (name != "")) {
			return kind
		}
	}
	return 0
}
