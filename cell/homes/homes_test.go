package homes_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/cellquota/cellquota/cell/homes"
	"github.com/cellquota/cellquota/internal/ids"
)

// TestOwnsEqualsThePlainTwin: a bucket is owned when an open range of its domain covers it.
func TestOwnsEqualsThePlainTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var ranges []homes.Range
		next := 0
		for next < ids.Buckets && rapid.Bool().Draw(t, "more") {
			from := rapid.IntRange(next, ids.Buckets-1).Draw(t, "from")
			to := rapid.IntRange(from, ids.Buckets-1).Draw(t, "to")
			ranges = append(ranges, homes.Range{Domain: "d", From: uint16(from), To: uint16(to), Open: rapid.Bool().Draw(t, "open")})
			next = to + 1
		}
		table := homes.New(ranges)
		user := ids.UserID(rapid.StringMatching(`[a-z0-9]{1,20}`).Draw(t, "user"))
		bucket := ids.Bucket(user)
		want := slices.ContainsFunc(ranges, func(r homes.Range) bool { return r.Open && bucket >= r.From && bucket <= r.To })
		if got := table.Owns("d", user); got != want {
			t.Fatalf("bucket %d: owned %v, want %v", bucket, got, want)
		}
		bits := table.Bitmap("d")
		if bits.Has(bucket) != want {
			t.Fatalf("bit of bucket %d is not %v", bucket, want)
		}
		if table.Owns("other", user) {
			t.Fatal("a domain without rows owns a bucket")
		}
	})
}

// TestBitmapIsInRedisOrder: GETBIT counts from the most significant bit of byte 0.
func TestBitmapIsInRedisOrder(t *testing.T) {
	bits := homes.New([]homes.Range{{From: 0, To: 0, Open: true}, {From: 9, To: 9, Open: true}}).Bitmap("")
	if bits[0] != 0x80 || bits[1] != 0x40 {
		t.Fatalf("bytes are %08b %08b", bits[0], bits[1])
	}
}

func TestTheZeroTableOwnsNothing(t *testing.T) {
	if (homes.Table{}).Owns("", "alice") {
		t.Fatal("owned")
	}
}
