package soldout_test

import (
	"testing"
	"time"

	"github.com/cellquota/cellquota/edge/soldout"
	"github.com/cellquota/cellquota/internal/clock"
)

func TestCache(t *testing.T) {
	clk := clock.NewManual(time.Unix(1000, 0))
	c, err := soldout.New(500*time.Millisecond, clk)
	if err != nil {
		t.Fatal(err)
	}
	k := soldout.Key{Campaign: "c", SKU: "s", Cell: "cell-1"}
	others := []soldout.Key{{Campaign: "c", SKU: "s", Cell: "cell-2"}, {Campaign: "c", SKU: "t", Cell: "cell-1"}, {Campaign: "d", SKU: "s", Cell: "cell-1"}}

	c.SawNone(k, 1) // too large a quantity marks nothing
	if c.See(k) != soldout.Nothing {
		t.Fatal("one unit is left, and it is marked")
	}
	c.SawNone(k, 0)
	if left, empty := c.Empty(k); !empty || left != 500*time.Millisecond {
		t.Fatalf("empty %v for %v", empty, left)
	}
	for _, o := range others {
		if _, empty := c.Empty(o); empty || c.See(o) != soldout.Nothing {
			t.Errorf("%v is marked too", o)
		}
	}
	clk.Advance(499 * time.Millisecond)
	if left, empty := c.Empty(k); !empty || left != time.Millisecond {
		t.Errorf("after 499 ms: empty %v for %v", empty, left)
	}
	clk.Advance(time.Millisecond)
	if _, empty := c.Empty(k); empty {
		t.Error("a mark outlives its TTL (K15)")
	}
	c.SawNone(k, 0)
	c.SawSome(k)
	if c.See(k) != soldout.Nothing {
		t.Error("a unit was sold, and it is marked empty")
	}
	c.SawFull(k)
	if _, empty := c.Empty(k); empty || c.See(k) != soldout.Full {
		t.Error("a full gate is not an empty stock")
	}
}

// While a gate is THROTTLED an edge lets through what the cell has left and the margin, once for a TTL.
func TestThrottledLetsTheMarginThrough(t *testing.T) {
	clk := clock.NewManual(time.Unix(1000, 0))
	c, err := soldout.New(500*time.Millisecond, clk)
	if err != nil {
		t.Fatal(err)
	}
	k := soldout.Key{Campaign: "c", SKU: "s", Cell: "cell-1"}
	passed := func() (n int) {
		for range 1000 {
			if _, ok := c.Pass(k); ok {
				n++
			}
		}
		return n
	}
	c.SawThrottled(k, 0, 50) // unknown
	if n := passed(); n != 1000 || c.See(k) != soldout.Full {
		t.Fatalf("%d of 1000 passed while nobody knows what is left; seen %v", n, c.See(k))
	}
	for margin, want := range map[int32]int{0: 10, 50: 11, 500: 15, 1000: 20} {
		c.SawThrottled(k, 10, margin)
		c.SawThrottled(k, 500, margin) // within the TTL
		if n := passed(); n != want {
			t.Errorf("margin %d: %d passed, want %d", margin, n, want)
		}
		if wait, ok := c.Pass(k); ok || wait != 500*time.Millisecond {
			t.Errorf("margin %d: %v %v", margin, wait, ok)
		}
		clk.Advance(500 * time.Millisecond)
		if _, ok := c.Pass(k); !ok {
			t.Errorf("margin %d: it outlives the TTL", margin)
		}
	}
}
