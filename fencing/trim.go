package fencing

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
)

// A shard answers with every adjustment of its life; a record of the control plane
// must not grow with that. So a proof is trimmed before it is stored, by what the
// journal says at that moment:
//
//	journal DONE, shard APPLIED, same kind and units   summed up, see Settled
//	under a version below the allocation's, and not
//	in the journal's part that a plan looks at         left out: no plan looks at it
//	everything else                                    stays, by name
//
// PlanReclaim takes a trimmed proof as the whole one. DONE is for ever, so what was
// summed up is DONE in the journal whenever it plans; what was not summed up is
// there by name, whatever it became. So the journal's DONE adjustments that are not
// named must be exactly the summed-up ones: as many, and with the same digest of
// ids, kinds, units and versions. One that the shard never heard of, one too few or
// another number of units is a mismatch as before; only its id is not told.

// Settled sums up the adjustments of one SKU on which shard and journal agree.
type Settled struct {
	SKU     SKU
	Version Version // of the allocation when the proof was trimmed
	Count   int
	Digest  [sha256.Size]byte
}

// Trim gives the proof as it is kept: see above. books gives the control plane's
// side of a SKU; of one that it does not know everything stays. Book.Journal must
// be whole, as for PlanReclaim; one that is behind only makes more stay.
func (p Proof) Trim(books func(SKU) (Book, bool)) Proof {
	kept := p
	kept.Applied, kept.Settled = nil, nil
	sides := map[SKU]*side{}
	for _, f := range p.SKUs {
		if b, known := books(f.SKU); known && b.Version < p.Version {
			sides[f.SKU] = newSide(b)
		}
	}
	for _, a := range p.Applied {
		if s := sides[a.SKU]; s == nil || !s.takes(a) {
			kept.Applied = append(kept.Applied, a)
		}
	}
	for _, f := range p.SKUs { // in the proof's order
		if s := sides[f.SKU]; s != nil && len(s.agreed) > 0 {
			kept.Settled = append(kept.Settled, sumUp(f.SKU, s.version, s.agreed))
		}
	}
	return kept
}

// side is the control plane's side of one SKU while a proof is trimmed.
type side struct {
	version Version
	journal map[string]Adjustment
	agreed  []Adjustment
}

func newSide(b Book) *side {
	s := &side{version: b.Version, journal: make(map[string]Adjustment, len(b.Journal))}
	for _, a := range b.Journal {
		s.journal[a.ID] = a
	}
	return s
}

// takes tells whether an adjustment need not be named.
func (s *side) takes(a Applied) bool {
	j, known := s.journal[a.ID]
	if !known {
		return a.Version < s.version
	}
	if j.State != JournalDone || a.Outcome != OutcomeApplied || j.Kind != a.Kind || j.Units != a.Units || j.Version < s.version {
		return false
	}
	s.agreed = append(s.agreed, j)
	return true
}

// settled gives the sum of a SKU, if the proof has one.
func (p Proof) settled(sku SKU) (Settled, bool) {
	for _, s := range p.Settled {
		if s.SKU == sku {
			return s, true
		}
	}
	return Settled{}, false
}

func sumUp(sku SKU, version Version, all []Adjustment) Settled {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b Adjustment) int { return cmp.Compare(a.ID, b.ID) })
	h := sha256.New()
	for _, a := range all {
		_, _ = fmt.Fprintf(h, "%q %d %d %d\n", a.ID, a.Kind, a.Units, a.Version) // a hash takes everything
	}
	out := Settled{SKU: sku, Version: version, Count: len(all)}
	h.Sum(out.Digest[:0])
	return out
}
