package reclaim

import (
	"errors"
	"fmt"
	"time"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/fencing"
	"github.com/cellquota/cellquota/internal/ids"
)

// The words of core and of fencing, both ways. The enums have the same numbers
// where both have the value; facts_test.go compares their names.

func skuOf(key core.BookKey) fencing.SKU {
	return fencing.SKU{Campaign: string(key.Campaign), SKU: string(key.SKU)}
}

func keyOf(sku fencing.SKU) core.BookKey {
	return core.BookKey{Campaign: ids.CampaignID(sku.Campaign), SKU: ids.SKUID(sku.SKU)}
}

// cellOf is a cell as the tables of fencing judge it.
func cellOf(c core.Cell, live bool) fencing.Cell {
	f := fencing.Cell{
		ID: string(c.Spec.ID), State: fencing.CellState(c.State), Version: fencing.Version(c.FenceVersion),
		Record: c.Version, Group: c.InstanceGroup, Live: live && c.State.MayRegister(),
	}
	if c.State == core.CellFenced {
		f.Evidence = fencing.StoreFence
	}
	return f
}

// SealID names what a fence took out of one SKU, as the shard's function does.
// The journal's record of the SKU's reclaim has it as its id too.
func SealID(cell ids.CellID, version int64, key core.BookKey) string {
	return fmt.Sprintf("seal.%s.%d.%s.%s", cell, version, key.Campaign, key.SKU)
}

// storedProof is the proof as it is kept.
func storedProof(p fencing.Proof, fencedAt time.Time) (core.Proof, error) {
	out := core.Proof{
		Cell: ids.CellID(p.Cell), FenceVersion: p.Version.Int64(), Evidence: core.EvidenceStoreFence,
		ShardIdentity: p.Identity, FencedAt: fencedAt.UTC(),
	}
	var errs []error
	units := func(n int64) quantity.Quantity {
		q, err := quantity.New(n)
		errs = append(errs, err)
		return q
	}
	for _, f := range p.SKUs {
		key := keyOf(f.SKU)
		if f.SealID != "" {
			out.Sealed = append(out.Sealed, core.SKUUnits{Key: key, Units: units(f.Sealed)})
		}
		out.Stocks = append(out.Stocks, core.StockFacts{
			Key: key, Granted: units(f.Granted), Available: units(f.Available), Reserved: units(f.Reserved), Confirmed: units(f.Confirmed),
			AdjustmentVersion: p.Version.Int64(), LastAdjustmentID: f.SealID,
		})
	}
	for _, a := range p.Applied {
		out.Adjustments = append(out.Adjustments, core.AppliedAdjustment{
			ID: a.ID, Key: keyOf(a.SKU), Kind: core.AdjustmentKind(a.Kind), Units: units(a.Units), Outcome: core.Outcome(a.Outcome),
			Step: core.Step{FenceVersion: a.Version.Int64(), Number: a.Number},
		})
	}
	for _, s := range p.Settled {
		out.Settled = append(out.Settled, core.SettledAdjustments{
			Key: keyOf(s.SKU), FenceVersion: s.Version.Int64(), Count: int64(s.Count), Digest: s.Digest[:],
		})
	}
	for _, at := range p.Positions {
		out.Positions = append(out.Positions, core.Position(at))
	}
	return out, errors.Join(errs...)
}

// provenBy is the stored proof as fencing plans on it.
func provenBy(p core.Proof) fencing.Proof {
	out := fencing.Proof{Cell: string(p.Cell), Version: fencing.Version(p.FenceVersion), Identity: p.ShardIdentity}
	sealed := map[core.BookKey]int64{}
	for _, s := range p.Sealed {
		sealed[s.Key] = s.Units.Int64()
	}
	for _, s := range p.Stocks {
		out.SKUs = append(out.SKUs, fencing.SKUFacts{
			SKU: skuOf(s.Key), SealID: s.LastAdjustmentID, Sealed: sealed[s.Key],
			Granted: s.Granted.Int64(), Available: s.Available.Int64(), Reserved: s.Reserved.Int64(), Confirmed: s.Confirmed.Int64(),
		})
	}
	for _, a := range p.Adjustments {
		out.Applied = append(out.Applied, fencing.Applied{
			ID: a.ID, SKU: skuOf(a.Key), Version: fencing.Version(a.FenceVersion), Number: a.Number,
			Kind: fencing.AdjustmentKind(a.Kind), Units: a.Units.Int64(), Outcome: fencing.Outcome(a.Outcome),
		})
	}
	for _, s := range p.Settled {
		sum := fencing.Settled{SKU: skuOf(s.Key), Version: fencing.Version(s.FenceVersion), Count: int(s.Count)}
		copy(sum.Digest[:], s.Digest)
		out.Settled = append(out.Settled, sum)
	}
	for _, at := range p.Positions {
		out.Positions = append(out.Positions, fencing.Position(at))
	}
	return out
}

// kinds are the adjustments that concern a fence.
var kinds = map[core.AdjustmentKind]fencing.AdjustmentKind{
	core.KindGrant: fencing.KindGrant, core.KindReturn: fencing.KindReturn, core.KindSeal: fencing.KindSeal, core.KindWriteOff: fencing.KindWriteOff,
}

// bookOf is the control plane's side of one (cell, SKU): its allocation, and
// what the journal says of the cell. frozen units were sealed by an earlier fence
// and never booked back.
func bookOf(cell ids.CellID, b core.Book, records []core.Record, frozen int64) fencing.Book {
	a, _ := b.Allocation(cell)
	out := fencing.Book{
		Cell: string(cell), SKU: skuOf(b.Key), Version: fencing.Version(max(a.FenceVersion, 1)), Granted: a.Granted.Int64(), Frozen: frozen,
	}
	for _, r := range records {
		for _, j := range r.Adjustments {
			kind, concerns := kinds[j.Kind]
			if !concerns || j.Cell != cell || j.FenceVersion < a.FenceVersion && !j.Open() {
				continue
			}
			out.Journal = append(out.Journal, fencing.Adjustment{
				ID: j.ID, Kind: kind, Version: fencing.Version(j.FenceVersion), Units: j.Units.Int64(), State: fencing.JournalState(j.State),
			})
		}
	}
	return out
}
