package ids

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

func TestBucketStaysInRange(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		u := UserID(rapid.String().Draw(t, "user"))
		if b := Bucket(u); b >= Buckets || b != Bucket(u) {
			t.Fatalf("Bucket(%q) = %d", u, b)
		}
	})
}

// TestBucketsAreEven: 409,600 sequential names put about 100 into each bucket;
// one with half or twice as many would starve or flood its cell.
func TestBucketsAreEven(t *testing.T) {
	t.Parallel()
	var users [Buckets]int
	for i := range 100 * Buckets {
		users[Bucket(UserID(fmt.Sprintf("user-%d", i)))]++
	}
	for b, n := range users {
		if n < 50 || n > 200 {
			t.Fatalf("bucket %d has %d users of about 100", b, n)
		}
	}
}

func TestPartitionStaysInRange(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := CampaignID(rapid.StringMatching(`[a-z0-9-]{1,63}`).Draw(t, "campaign"))
		s := SKUID(rapid.StringMatching(`[A-Za-z0-9._-]{1,64}`).Draw(t, "sku"))
		n := rapid.IntRange(1, 1000).Draw(t, "partitions")
		if p := Partition(c, s, n); p < 0 || int(p) >= n || p != Partition(c, s, n) {
			t.Fatalf("Partition(%s, %s, %d) = %d", c, s, n, p)
		}
	})
	if Partition("c", "s", 1) != 0 {
		t.Fatal("one partition carries everything")
	}
}

func TestPartitionRefusesNoPartitions(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Fatal("a topic without partitions was accepted")
		}
	}()
	Partition("c", "s", 0)
}

func BenchmarkDeriveReservation(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		DeriveReservation("double-eleven", "phone-x", "alice", "req-1", "cell-1", Build{3, 7})
	}
}
