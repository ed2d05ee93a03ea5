package fencing

import (
	"cmp"
	"errors"
	"fmt"
)

// MaxUnits bounds every number of units here, as the contract does. This package
// imports nothing of the platform, so units are plain integers, checked by
// Check wherever they come in.
const MaxUnits = 1_000_000_000

// ErrProof says that a proof contradicts itself. Nothing may be moved by it.
var ErrProof = errors.New("the proof is broken")

// SKU names one SKU of one campaign.
type SKU struct {
	Campaign string
	SKU      string
}

// String gives "campaign/sku".
func (s SKU) String() string { return s.Campaign + "/" + s.SKU }

// Compare orders by campaign, then by SKU.
func (s SKU) Compare(other SKU) int {
	return cmp.Or(cmp.Compare(s.Campaign, other.Campaign), cmp.Compare(s.SKU, other.SKU))
}

// Proof is what the fencer read in a shard, in statements after the one that
// wrote the fence (G-02). From then on no holder of a lower version commits
// anything (I8), so the facts stand still but for closings and payments under a
// higher version, which never change granted.
type Proof struct {
	Cell string
	// Version is the one that the fence installed; everything below it has ended.
	Version Version
	// Identity is the system identifier and timeline of the PostgreSQL that spoke.
	Identity string
	// SKUs is every stock row of the shard, each once.
	SKUs []SKUFacts
	// Applied is every numbered adjustment that the shard decided under a version
	// below Version, each once; in a proof that was trimmed, those that Trim leaves.
	Applied []Applied
	// Settled sums up, per SKU, what Trim left out; each SKU once.
	Settled []Settled
	// Positions is where each partition's consumer stood.
	Positions []Position
}

// SKUFacts is one stock row after the seal.
type SKUFacts struct {
	SKU
	// SealID is the adjustment id of the SEAL entry, empty where the shard had no
	// such row when it was fenced.
	SealID string
	// Sealed is what the seal took out: available before the fence.
	Sealed    int64
	Granted   int64
	Available int64 // 0 after the seal
	Reserved  int64
	Confirmed int64
}

// Applied is the shard's word on one numbered adjustment.
type Applied struct {
	ID      string
	SKU     SKU
	Version Version // under which it was decided
	Number  int64   // from 1 under each version
	Kind    AdjustmentKind
	Units   int64 // 0 unless Outcome is OutcomeApplied
	Outcome Outcome
}

// Position is where the shard goes on reading a partition.
type Position struct {
	Topic       string
	TopicID     string
	Partition   int32
	NextOffset  int64
	LeaderEpoch int32
}

// Facts gives the stock row of a SKU; ok is false where the shard has none,
// which says as much as a row of zeros: nothing was ever granted there.
func (p Proof) Facts(sku SKU) (facts SKUFacts, ok bool) {
	for _, f := range p.SKUs {
		if f.SKU == sku {
			return f, true
		}
	}
	return SKUFacts{SKU: sku}, false
}

// Check verifies that the proof agrees with itself: names are there, each thing
// once, every row obeys I2 after a seal (nothing available, granted = reserved +
// confirmed), numbers are used once, and nothing was decided under the fence's
// own version. ErrProof names what does not hold.
func (p Proof) Check() error {
	if p.Cell == "" || p.Version < 1 || p.Version > MaxVersion {
		return p.broken("cell %q, version %s", p.Cell, p.Version)
	}
	known := map[SKU]bool{}
	seals := map[string]bool{}
	for _, f := range p.SKUs {
		if known[f.SKU] || f.SealID != "" && seals[f.SealID] {
			return p.broken("%s appears twice", f.SKU)
		}
		known[f.SKU], seals[f.SealID] = true, true
		if why := f.fault(); why != "" {
			return p.broken("%s: %s", f.SKU, why)
		}
	}
	if err := p.checkApplied(known, seals); err != nil {
		return err
	}
	summed := map[SKU]bool{}
	for _, s := range p.Settled {
		if summed[s.SKU] || !known[s.SKU] || s.Count < 1 || s.Version < 1 || s.Version >= p.Version {
			return p.broken("%s sums up %d adjustments from version %s, or twice, or has no stock row", s.SKU, s.Count, s.Version)
		}
		summed[s.SKU] = true
	}
	return p.checkPositions()
}

func (p Proof) broken(format string, args ...any) error {
	return fmt.Errorf("cell %.64q at version %s: %s: %w", p.Cell, p.Version, fmt.Sprintf(format, args...), ErrProof)
}

// fault tells what is wrong with a row, or nothing.
func (f SKUFacts) fault() string {
	for _, units := range []int64{f.Sealed, f.Granted, f.Available, f.Reserved, f.Confirmed} {
		if units < 0 || units > MaxUnits {
			return fmt.Sprintf("%d units out of range", units)
		}
	}
	switch {
	case f.Campaign == "" || f.SKU.SKU == "":
		return "unnamed"
	case f.Available != 0:
		return fmt.Sprintf("%d available after the seal", f.Available)
	case f.Granted != f.Reserved+f.Confirmed:
		return fmt.Sprintf("granted %d, reserved %d + confirmed %d", f.Granted, f.Reserved, f.Confirmed)
	case f.Sealed > 0 && f.SealID == "":
		return fmt.Sprintf("%d units sealed without an id", f.Sealed)
	}
	return ""
}

func (p Proof) checkApplied(known map[SKU]bool, seals map[string]bool) error {
	type place struct {
		sku     SKU
		version Version
		number  int64
	}
	ids, numbers := map[string]bool{}, map[place]bool{}
	for _, a := range p.Applied {
		at := place{a.SKU, a.Version, a.Number}
		switch {
		case a.ID == "" || ids[a.ID] || seals[a.ID]:
			return p.broken("adjustment %.64q is unnamed or appears twice", a.ID)
		case !known[a.SKU]:
			return p.broken("adjustment %.64q is of %s, which has no stock row", a.ID, a.SKU)
		case a.Version < 1 || a.Version >= p.Version:
			return p.broken("adjustment %.64q was decided under version %s", a.ID, a.Version)
		case a.Number < 1 || numbers[at]:
			return p.broken("adjustment %.64q has number %d, used or below 1", a.ID, a.Number)
		case a.Kind != KindGrant && a.Kind != KindReturn:
			return p.broken("adjustment %.64q is a %s", a.ID, a.Kind)
		case a.Outcome < OutcomeApplied || a.Outcome > OutcomeVoided:
			return p.broken("adjustment %.64q has outcome %s", a.ID, a.Outcome)
		case a.Units < 0 || a.Units > MaxUnits || a.Outcome != OutcomeApplied && a.Units != 0:
			return p.broken("adjustment %.64q is %s with %d units", a.ID, a.Outcome, a.Units)
		}
		ids[a.ID], numbers[at] = true, true
	}
	return nil
}

func (p Proof) checkPositions() error {
	type partition struct {
		topic  string
		number int32
	}
	seen := map[partition]bool{}
	for _, at := range p.Positions {
		key := partition{at.Topic, at.Partition}
		if at.Topic == "" || at.Partition < 0 || at.NextOffset < 0 || seen[key] {
			return p.broken("position %s/%d at %d is unnamed, out of range or appears twice", at.Topic, at.Partition, at.NextOffset)
		}
		seen[key] = true
	}
	return nil
}
