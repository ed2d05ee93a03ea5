package route_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/cellquota/cellquota/edge/route"
	"github.com/cellquota/cellquota/internal/ids"
)

var opens = time.Date(2026, 11, 11, 0, 0, 0, 0, time.FixedZone("", 8*3600))

func campaign() *route.Campaign {
	c := &route.Campaign{
		ID: "c", Stage: route.Published, OpenAt: opens, CloseAt: opens.Add(30 * time.Minute),
		ClaimFrom: opens.Add(-30 * time.Minute), PermitTTL: 5 * time.Minute, SKUs: []route.SKU{{ID: "s"}},
	}
	c.Seal(nil)
	return c
}

// The window is [open_at, close_at), to the nanosecond (K65).
func TestWindow(t *testing.T) {
	c := campaign()
	for _, row := range []struct {
		at   time.Time
		want route.Calendar
	}{
		{c.OpenAt.Add(-time.Millisecond), route.NotStarted},
		{c.OpenAt.Add(-1), route.NotStarted},
		{c.OpenAt, route.Go},
		{c.OpenAt.UTC(), route.Go},
		{c.CloseAt.Add(-1), route.Go},
		{c.CloseAt, route.Ended},
		{c.CloseAt.Add(time.Hour), route.Ended},
	} {
		if got := c.RequestCalendar(c.SKUs[0], row.at); got != row.want {
			t.Errorf("at %v: %v, want %v", row.at, got, row.want)
		}
	}
	for _, row := range []struct {
		at   time.Time
		want route.Calendar
	}{{c.ClaimFrom.Add(-1), route.NotStarted}, {c.ClaimFrom, route.Go}, {c.CloseAt, route.Ended}} {
		if got := c.PermitCalendar(c.SKUs[0], row.at); got != row.want {
			t.Errorf("permit at %v: %v, want %v", row.at, got, row.want)
		}
	}
}

// What operators and the control plane say goes before the clock, the end before everything.
func TestCalendarOrder(t *testing.T) {
	for name, row := range map[string]struct {
		stage route.Stage
		sku   route.SKU
		at    time.Duration
		want  route.Calendar
	}{
		"paused":           {route.Paused, route.SKU{}, 0, route.OnHold},
		"SKU paused":       {route.Published, route.SKU{Paused: true}, 0, route.OnHold},
		"final":            {route.Published, route.SKU{Final: true}, 0, route.SoldOut},
		"final and paused": {route.Paused, route.SKU{Final: true}, 0, route.SoldOut},
		"closed":           {route.Closed, route.SKU{Final: true}, 0, route.Ended},
		"closed early":     {route.Closed, route.SKU{}, -time.Hour, route.Ended},
		"over and paused":  {route.Paused, route.SKU{}, time.Hour, route.Ended},
	} {
		c := campaign()
		c.Stage = row.stage
		if got := c.RequestCalendar(row.sku, opens.Add(row.at)); got != row.want {
			t.Errorf("%s: %v, want %v", name, got, row.want)
		}
	}
}

func TestPermitWindow(t *testing.T) {
	c := campaign()
	for _, claimed := range []time.Duration{-10 * time.Minute, 0, 10 * time.Minute} {
		notBefore, expires := c.PermitWindow(opens.Add(claimed))
		if want := opens.Add(max(claimed, 0)); !notBefore.Equal(want) || expires.Sub(notBefore) != c.PermitTTL {
			t.Errorf("claimed at %v: [%v, %v)", claimed, notBefore, expires)
		}
	}
}

// Whatever the ranges, a domain is either refused or gives every bucket to the cell it was given to.
func TestDomain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cuts := rapid.SliceOfNDistinct(rapid.Int32Range(1, ids.Buckets-1), 0, 8, rapid.ID).Draw(t, "cuts")
		owner := make([]ids.CellID, ids.Buckets)
		var ranges []route.Owned
		from := int32(0)
		for b := int32(1); b <= ids.Buckets; b++ {
			cut := b == ids.Buckets
			for _, c := range cuts {
				cut = cut || c == b
			}
			if !cut {
				continue
			}
			cell := ids.CellID(fmt.Sprintf("cell-%d", rapid.IntRange(1, 4).Draw(t, "cell")))
			ranges = append(ranges, route.Owned{Cell: cell, From: from, To: b - 1})
			for i := from; i < b; i++ {
				owner[i] = cell
			}
			from = b
		}
		ranges = rapid.Permutation(ranges).Draw(t, "order")
		d, err := route.NewDomain(ranges)
		if err != nil {
			t.Fatal(err)
		}
		c := &route.Campaign{}
		c.Seal(map[string]*route.Domain{"": d})
		user := ids.UserID(rapid.StringMatching(`[a-z]{1,8}`).Draw(t, "user"))
		if got, ok := c.Home("", user); !ok || got != owner[ids.Bucket(user)] {
			t.Fatalf("home is %s, want %s", got, owner[ids.Bucket(user)])
		}
		// Any hole or overlap is refused.
		hurt := rapid.IntRange(0, len(ranges)-1).Draw(t, "hurt")
		broken := append([]route.Owned(nil), ranges...)
		if rapid.Bool().Draw(t, "hole") {
			broken = append(broken[:hurt], broken[hurt+1:]...)
		} else {
			broken = append(broken, ranges[hurt])
		}
		if _, err := route.NewDomain(broken); !errors.Is(err, route.ErrBuckets) {
			t.Fatalf("a broken map is accepted: %v", err)
		}
	})
}

// What a handover says of a bucket is what reading all of them one by one says.
func TestMoves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		user := ids.UserID(rapid.StringMatching(`[a-z]{1,8}`).Draw(t, "user"))
		bucket, home := int32(ids.Bucket(user)), ids.CellID("cell-1")
		d, err := route.NewDomain([]route.Owned{{Cell: home, From: 0, To: ids.Buckets - 1}})
		if err != nil {
			t.Fatal(err)
		}
		cell := rapid.Custom(func(t *rapid.T) ids.CellID {
			return ids.CellID(fmt.Sprintf("cell-%d", rapid.IntRange(1, 4).Draw(t, "n")))
		})
		var moves []route.Move
		moving, elsewhere := false, map[ids.CellID]bool{}
		for range rapid.IntRange(0, 5).Draw(t, "moves") {
			m := route.Move{From: cell.Draw(t, "from"), To: cell.Draw(t, "to"), Done: rapid.Bool().Draw(t, "done")}
			if rapid.Bool().Draw(t, "about him") {
				m.Buckets = []route.Range{{First: max(bucket-1, 0), Last: bucket}}
				moving = moving || !m.Done
				elsewhere[m.From], elsewhere[m.To] = true, true
			} else if bucket > 0 {
				m.Buckets = []route.Range{{First: 0, Last: bucket - 1}}
			}
			moves = append(moves, m)
		}
		delete(elsewhere, home)
		if err := d.WithMoves(moves); err != nil {
			t.Fatal(err)
		}
		c := &route.Campaign{}
		c.Seal(map[string]*route.Domain{"": d})
		if got := c.Moving("", user); got != moving {
			t.Fatalf("moving %v, want %v", got, moving)
		}
		got := c.Elsewhere("", user)
		for _, one := range got {
			if !elsewhere[one] {
				t.Fatalf("%s has nothing of him, or is there twice: %v", one, got)
			}
			delete(elsewhere, one)
		}
		if len(elsewhere) > 0 {
			t.Fatalf("%v are not in %v", elsewhere, got)
		}
		if c.Moving("none", user) || c.Elsewhere("none", user) != nil {
			t.Fatal("a domain that is not there moves")
		}
	})
	d, err := route.NewDomain([]route.Owned{{Cell: "cell-1", From: 0, To: ids.Buckets - 1}})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []route.Range{{-1, 5}, {0, ids.Buckets}, {5, 4}} {
		if err := d.WithMoves([]route.Move{{From: "a", To: "b", Buckets: []route.Range{r}}}); !errors.Is(err, route.ErrBuckets) {
			t.Errorf("%v is accepted: %v", r, err)
		}
	}
}

func TestDomainBounds(t *testing.T) {
	for _, r := range []route.Owned{{"a", -1, 4095}, {"a", 0, 4096}, {"a", 5, 4}} {
		if _, err := route.NewDomain([]route.Owned{r}); !errors.Is(err, route.ErrBuckets) || !strings.Contains(err.Error(), "a") {
			t.Errorf("%v: %v", r, err)
		}
	}
}

func TestStandings(t *testing.T) {
	var nobody *route.Cell
	if nobody.Admits() || nobody.Answers() {
		t.Error("no cell admits or answers")
	}
	for standing, want := range map[route.Standing][2]bool{
		route.Selling: {true, true}, route.Settling: {false, true}, route.Gone: {false, false}, route.Unknown: {false, true},
	} {
		c := &route.Cell{Standing: standing, Addresses: []string{"x"}}
		if c.Admits() != want[0] || c.Answers() != want[1] {
			t.Errorf("%v: admits %v, answers %v", standing, c.Admits(), c.Answers())
		}
		c.Addresses = nil
		if c.Admits() || c.Answers() {
			t.Errorf("%v without addresses", standing)
		}
	}
}
