package core

import (
	"strconv"
	"time"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/internal/ids"
)

// StockFacts is one stock row as a shard has it.
type StockFacts struct {
	Key                                     BookKey
	Granted, Available, Reserved, Confirmed quantity.Quantity
	Released                                int64 // cumulative, not part of the sum
	Version                                 int64 // grows with every change of the row
	// AdjustmentVersion, LastNumber and LastAdjustmentID name the newest adjustment
	// that the shard decided; BookRecordID the newest book change it was told.
	AdjustmentVersion int64
	LastNumber        int64
	LastAdjustmentID  string
	BookRecordID      string
}

// Proof is what the fencer read in a shard after the fence: what can be written
// no more, and what was never sold.
type Proof struct {
	Cell         ids.CellID
	FenceVersion int64 // installed by the fence; everything below it writes no more
	Evidence     Evidence
	Sealed       []SKUUnits
	Stocks       []StockFacts
	// Adjustments are what the shard decided, but for what Settled sums up and what no
	// reclaim can need: a proof does not grow with a cell's whole life.
	Adjustments []AppliedAdjustment
	Settled     []SettledAdjustments
	Positions   []Position
	// ShardIdentity is PostgreSQL's system identifier and timeline, "ID/TIMELINE".
	ShardIdentity string
	FencedAt      time.Time // by the shard's clock; of an attested loss by the control plane's
	// Attestation is whose word an ATTESTED_LOSS is; empty for a STORE_FENCE.
	Attestation Attestation
	// Parts is how many parts the rows of this proof stand in; 0: here. Part is which
	// of them this is, from 1; 0: none. Parts and their proof name the same Set.
	Parts, Part int
	Set         string
	// ModRevision is etcd's; 0: not stored.
	ModRevision int64
}

// Attestation is the word of two people that a shard is gone for good: who asked for
// the write-off and why, and who approved it, why and when.
type Attestation struct {
	Reason, Operator         string
	Approver, ApprovalReason string
	ApprovedAt               time.Time
}

// SettledAdjustments sums up the adjustments of one SKU that the shard applied and
// the journal had as DONE when the proof was stored: fencing.Settled.
type SettledAdjustments struct {
	Key          BookKey
	FenceVersion int64
	Count        int64
	Digest       []byte
}

// SKUUnits is units of one SKU.
type SKUUnits struct {
	Key   BookKey
	Units quantity.Quantity
}

// AppliedAdjustment is the shard's word on one adjustment.
type AppliedAdjustment struct {
	ID      string
	Key     BookKey
	Kind    AdjustmentKind
	Units   quantity.Quantity
	Outcome Outcome
	Step
}

// Position of one partition in the shard.
type Position struct {
	Topic       string
	TopicID     string
	Partition   int32
	NextOffset  int64
	LeaderEpoch int32
}

// ProofID names a proof: CELL/VERSION.
func ProofID(cell ids.CellID, fenceVersion int64) string {
	return string(cell) + "/" + strconv.FormatInt(fenceVersion, 10)
}

// Check verifies a proof that was read or is to be stored. ErrBroken.
func (p Proof) Check() error {
	if p.Cell == "" || p.FenceVersion < 1 || p.Evidence < EvidenceStoreFence || p.Evidence > EvidenceAttestedLoss {
		return broken("proof of cell %q at fence version %d with evidence %s", p.Cell, p.FenceVersion, p.Evidence)
	}
	if who := p.Attestation; p.Evidence == EvidenceAttestedLoss && (who.Reason == "" || who.Operator == "" || who.Approver == "" || who.Operator == who.Approver) {
		return broken("proof of cell %q at fence version %d: attested by %q, approved by %q, for %q", p.Cell, p.FenceVersion, who.Operator, who.Approver, who.Reason)
	}
	for _, s := range p.Stocks {
		if s.Granted.Int64() != s.Available.Int64()+s.Reserved.Int64()+s.Confirmed.Int64() {
			return broken("I2 of %s in cell %s: granted %s, available %s, reserved %s, confirmed %s", s.Key, p.Cell, s.Granted, s.Available, s.Reserved, s.Confirmed)
		}
	}
	return nil
}
