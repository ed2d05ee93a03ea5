package core_test

import (
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/ids"
)

var moveTime = time.UnixMilli(1_800_000_000_000).UTC()

// halves is a route of two domains, each dealt to a and b.
func halves(t *testing.T) core.Route {
	t.Helper()
	homes, err := allocator.DealBuckets([]allocator.CellWeight{{Cell: "a", Weight: 1}, {Cell: "b", Weight: 1}}, allocator.Buckets)
	if err != nil {
		t.Fatal(err)
	}
	return core.Route{Campaign: "c", Version: 1, Domains: []core.DomainRoute{{Domain: "east", Homes: homes}, {Domain: "west", Homes: homes}}}
}

func TestAHandoverOfTheRoute(t *testing.T) {
	before := halves(t)
	ordered, move, err := before.Order("east", "a", "b", 1000, 4095, moveTime.Add(time.Microsecond))
	if err != nil {
		t.Fatal(err)
	}
	if from, to := move.Span(); from != 1000 || to != 2047 || move.Buckets() != 1048 || !move.Has(2047) || move.Has(2048) || move.RouteVersion != 2 || !move.OrderedAt.Equal(moveTime) {
		t.Errorf("the move: %+v", move)
	}
	if ordered.Version != 1 || len(before.Domains[0].Moves) != 0 || !ordered.Moving("a") || !ordered.Moving("b") || before.Moving("a") {
		t.Error("an order changes the map or the route it was given")
	}
	if home, ok := ordered.Domains[0].Homes.Home(1000); !ok || home != "a" {
		t.Errorf("a bucket that moves is %s's", home)
	}
	turned, err := ordered.Turn(2)
	if err != nil {
		t.Fatal(err)
	}
	for bucket, want := range map[uint16]string{999: "a", 1000: "b", 2047: "b"} {
		if home, _ := turned.Domains[0].Homes.Home(bucket); home != want {
			t.Errorf("bucket %d is %s's, want %s", bucket, home, want)
		}
		if home, _ := turned.Domains[1].Homes.Home(bucket); home != "a" {
			t.Errorf("bucket %d of the other domain is %s's", bucket, home)
		}
	}
	if _, m, ok := turned.Move(2); !ok || m.State != core.BucketMoved || turned.Version != 2 || turned.Moving("a") {
		t.Errorf("after the turn: version %d, %+v", turned.Version, m)
	}
	if again, err := turned.Turn(2); err != nil || again.Version != 2 {
		t.Errorf("a second turn: version %d, %v", again.Version, err)
	}
}

// Two handovers of different buckets go on side by side; whichever ends first, the
// version grows with each, and no two have the same.
func TestHandoversSideBySide(t *testing.T) {
	r, first, err := halves(t).Order("east", "a", "b", 0, 99, moveTime)
	if err != nil {
		t.Fatal(err)
	}
	r, second, err := r.Order("west", "a", "b", 0, 99, moveTime)
	if err != nil || second.RouteVersion != 3 {
		t.Fatalf("%+v, %v", second, err)
	}
	if r, err = r.Turn(second.RouteVersion); err != nil || r.Version != 3 {
		t.Fatalf("version %d, %v", r.Version, err)
	}
	if r, err = r.Turn(first.RouteVersion); err != nil || r.Version != 4 {
		t.Fatalf("version %d, %v", r.Version, err)
	}
	if _, third, err := r.Order("east", "b", "a", 50, 99, moveTime); err != nil || third.RouteVersion != 5 {
		t.Errorf("and back: %+v, %v", third, err)
	}
}

func TestARefusedHandover(t *testing.T) {
	r, _, err := halves(t).Order("east", "a", "b", 100, 199, moveTime)
	if err != nil {
		t.Fatal(err)
	}
	full := halves(t)
	for n := range core.MaxBucketMoves {
		giver, taker := ids.CellID("a"), ids.CellID("b")
		if n%2 == 1 {
			giver, taker = taker, giver
		}
		var m core.BucketMove
		if full, m, err = full.Order("east", giver, taker, 0, 9, moveTime); err != nil {
			t.Fatal(err)
		}
		if full, err = full.Turn(m.RouteVersion); err != nil {
			t.Fatal(err)
		}
	}
	for name, try := range map[string]struct {
		route       core.Route
		domain      string
		from, to    ids.CellID
		first, last uint16
		want        error
	}{
		"of buckets that move":      {r, "east", "a", "c", 199, 200, core.ErrMoving},
		"of another's buckets":      {r, "east", "a", "c", 2048, 4095, core.ErrNothingToMove},
		"outside the space":         {r, "east", "a", "c", 0, 4096, core.ErrNothingToMove},
		"to itself":                 {r, "east", "a", "a", 0, 9, core.ErrNothingToMove},
		"in a domain that is not":   {r, "north", "a", "c", 0, 9, core.ErrUnknownDomain},
		"when the list is full":     {full, "east", "a", "b", 0, 9, core.ErrMoveLimit},
		"backwards":                 {r, "east", "a", "c", 9, 0, core.ErrNothingToMove},
		"and one beside it is fine": {r, "east", "a", "c", 200, 210, nil},
	} {
		if _, _, err := try.route.Order(try.domain, try.from, try.to, try.first, try.last, moveTime); !errors.Is(err, try.want) {
			t.Errorf("%s: %v, want %v", name, err, try.want)
		}
	}
	if _, err := r.Turn(7); !errors.Is(err, core.ErrUnknownMove) {
		t.Errorf("the turn of what is not ordered: %v", err)
	}
}

// A record that somebody else wrote, or that was damaged, is no route.
func TestARouteThatCannotBe(t *testing.T) {
	for name, spoil := range map[string]func(d *core.DomainRoute, r *core.Route){
		"a move without buckets":    func(d *core.DomainRoute, _ *core.Route) { d.Moves[0].Ranges = nil },
		"a move to itself":          func(d *core.DomainRoute, _ *core.Route) { d.Moves[0].To = "a" },
		"a move of no state":        func(d *core.DomainRoute, _ *core.Route) { d.Moves[0].State = 3 },
		"a move of no time":         func(d *core.DomainRoute, _ *core.Route) { d.Moves[0].OrderedAt = time.Time{} },
		"ranges of another cell":    func(d *core.DomainRoute, _ *core.Route) { d.Moves[0].Ranges[0].Cell = "b" },
		"the giver does not own it": func(d *core.DomainRoute, _ *core.Route) { d.Moves[0].Ranges[0].To = 2048 },
		"the first version":         func(d *core.DomainRoute, _ *core.Route) { d.Moves[0].RouteVersion = 1 },
		"two of one version":        func(d *core.DomainRoute, _ *core.Route) { d.Moves = append(d.Moves, d.Moves[0]) },
		"done above the route":      func(d *core.DomainRoute, _ *core.Route) { d.Moves[0].State = core.BucketMoved },
		"the same bucket moves twice": func(d *core.DomainRoute, _ *core.Route) {
			m := d.Moves[0]
			m.RouteVersion = 9
			d.Moves = append(d.Moves, m)
		},
		"ranges that do not ascend": func(d *core.DomainRoute, _ *core.Route) {
			d.Moves[0].Ranges = append(d.Moves[0].Ranges, d.Moves[0].Ranges[0])
		},
		"more moves than are numbered": func(d *core.DomainRoute, _ *core.Route) { d.Moves = make([]core.BucketMove, core.MaxBucketMoves+1) },
	} {
		r, _, err := halves(t).Order("east", "a", "b", 100, 199, moveTime)
		if err != nil {
			t.Fatal(err)
		}
		spoil(&r.Domains[0], &r)
		if err := r.Check(); !errors.Is(err, core.ErrBroken) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Whatever is ordered and turned in whatever order: every bucket has one home, and
// where it is now is where the last of its turned moves took it.
func TestBucketsHaveOneHomeWhateverIsHandedOver(t *testing.T) {
	cells := []ids.CellID{"a", "b", "c"}
	start := halves(t)
	rapid.Check(t, func(t *rapid.T) {
		r := start
		var twin [allocator.Buckets]ids.CellID
		for b := range twin {
			home, _ := r.Domains[0].Homes.Home(uint16(b))
			twin[b] = ids.CellID(home)
		}
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			if open := moving(r); len(open) > 0 && rapid.Bool().Draw(t, "turn") {
				m := rapid.SampledFrom(open).Draw(t, "which")
				next, err := r.Turn(m.RouteVersion)
				if err != nil || next.Version <= r.Version {
					t.Fatalf("turn: version %d after %d, %v", next.Version, r.Version, err)
				}
				for b := range twin {
					if m.Has(uint16(b)) {
						twin[b] = m.To
					}
				}
				r = next
				continue
			}
			first := rapid.Uint16Range(0, 4095).Draw(t, "first")
			next, _, err := r.Order("east", rapid.SampledFrom(cells).Draw(t, "from"), rapid.SampledFrom(cells).Draw(t, "to"), first, rapid.Uint16Range(first, 4095).Draw(t, "last"), moveTime)
			if err == nil {
				r = next
			} else if !errors.Is(err, core.ErrMoving) && !errors.Is(err, core.ErrNothingToMove) {
				t.Fatal(err)
			}
		}
		for b, want := range twin {
			if home, _ := r.Domains[0].Homes.Home(uint16(b)); home != string(want) {
				t.Fatalf("bucket %d is %s's, want %s", b, home, want)
			}
		}
	})
}

func moving(r core.Route) (out []core.BucketMove) {
	for _, m := range r.Domains[0].Moves {
		if m.State == core.BucketMoving {
			out = append(out, m)
		}
	}
	return out
}
