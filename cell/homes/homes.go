package homes

import "github.com/cellquota/cellquota/internal/ids"

// Range is one bucket row: [From, To] of a traffic domain.
type Range struct {
	Domain string
	From   uint16
	To     uint16
	Open   bool // false: CLOSED by a handover, or IMPORTING
}

// Bitmap has one bit per bucket, bit b of byte b/8 from the most significant: Redis GETBIT's order.
type Bitmap [ids.Buckets / 8]byte

// Table says which buckets of one campaign this cell owns. The zero Table owns none.
type Table struct {
	domains map[string]*Bitmap
}

// New builds the table of the open ranges.
func New(ranges []Range) Table {
	t := Table{domains: map[string]*Bitmap{}}
	for _, r := range ranges {
		bits := t.domains[r.Domain]
		if bits == nil {
			bits = &Bitmap{}
			t.domains[r.Domain] = bits
		}
		if !r.Open {
			continue
		}
		for b := int(r.From); b <= int(r.To) && b < ids.Buckets; b++ {
			bits[b/8] |= 0x80 >> (b % 8)
		}
	}
	return t
}

// Owns reports whether user's bucket of domain may get orders here.
func (t Table) Owns(domain string, user ids.UserID) bool {
	bits := t.domains[domain]
	return bits != nil && bits.Has(ids.Bucket(user))
}

// Domains are the domains that have any row, in no order.
func (t Table) Domains() []string {
	out := make([]string, 0, len(t.domains))
	for d := range t.domains {
		out = append(out, d)
	}
	return out
}

// Bitmap is the domain's bits; all zero for a domain without rows.
func (t Table) Bitmap(domain string) Bitmap {
	if bits := t.domains[domain]; bits != nil {
		return *bits
	}
	return Bitmap{}
}

// Has reports the bit of a bucket below ids.Buckets.
func (b *Bitmap) Has(bucket uint16) bool { return b[bucket/8]&(0x80>>(bucket%8)) != 0 }
