package core

// A proof names every SKU of its cell, and etcd bounds what one value holds. So a large
// one is stored in parts, which hold its rows, and a record of its own, which names them.

// MaxProofParts bounds the parts of one proof.
const MaxProofParts = 64

// rowBytes is more than the numbers and tags of one row take when it is stored.
const rowBytes = 128

// Split gives the proof as it is stored where a value holds at most so many bytes: its
// own record and its parts, in order; no part where it fits as it is.
func (p Proof) Split(most int) (own Proof, parts []Proof) {
	own, size := p, 0
	own.Sealed, own.Stocks, own.Adjustments, own.Settled = nil, nil, nil, nil
	room := func(bytes int) *Proof {
		if len(parts) == 0 || size+bytes > most {
			parts = append(parts, Proof{Cell: p.Cell, FenceVersion: p.FenceVersion, Evidence: p.Evidence, Part: len(parts) + 1})
			size = 0
		}
		size += bytes
		return &parts[len(parts)-1]
	}
	bytes := func(key BookKey, ids ...string) (n int) {
		for _, id := range ids {
			n += len(id)
		}
		return n + len(key.Campaign) + len(key.SKU) + rowBytes
	}
	for _, r := range p.Sealed {
		to := room(bytes(r.Key))
		to.Sealed = append(to.Sealed, r)
	}
	for _, r := range p.Stocks {
		to := room(bytes(r.Key, r.LastAdjustmentID, r.BookRecordID))
		to.Stocks = append(to.Stocks, r)
	}
	for _, r := range p.Adjustments {
		to := room(bytes(r.Key, r.ID))
		to.Adjustments = append(to.Adjustments, r)
	}
	for _, r := range p.Settled {
		to := room(bytes(r.Key, string(r.Digest)))
		to.Settled = append(to.Settled, r)
	}
	if len(parts) < 2 {
		return p, nil
	}
	own.Parts = len(parts)
	return own, parts
}

// Join gives the whole of a proof that was read; false where a part is not there or
// belongs to another try.
func (p Proof) Join(part func(n int) (Proof, bool)) (Proof, bool) {
	for n := 1; n <= p.Parts; n++ {
		rows, found := part(n)
		if !found || rows.Set != p.Set || rows.Part != n {
			return Proof{}, false
		}
		p.Sealed, p.Stocks = append(p.Sealed, rows.Sealed...), append(p.Stocks, rows.Stocks...)
		p.Adjustments, p.Settled = append(p.Adjustments, rows.Adjustments...), append(p.Settled, rows.Settled...)
	}
	p.Parts, p.Set = 0, ""
	return p, true
}
