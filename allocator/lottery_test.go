package allocator_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"sort"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/cellquota/cellquota/allocator"
)

// plainLots draws the long way round: every ticket of everybody in one list, sorted;
// whoever comes first wins, and his other tickets are skipped.
func plainLots(rules allocator.LotteryRules, entrants []allocator.Entrant) []string {
	frame := func(parts ...string) (out []byte) {
		for _, p := range parts {
			out = binary.BigEndian.AppendUint32(out, uint32(len(p)))
			out = append(out, p...)
		}
		return out
	}
	key := sha256.Sum256(frame("cellquota lottery 1", rules.Campaign, rules.SKU, string(rules.Seed[:]), string(rules.Entrants[:]), rules.Beacon))
	type ticket struct{ number, id string }
	var drum []ticket
	for _, e := range entrants {
		for n := range e.Tickets {
			mac := hmac.New(sha256.New, key[:])
			mac.Write(frame(e.ID, strconv.Itoa(n)))
			drum = append(drum, ticket{string(mac.Sum(nil)), e.ID})
		}
	}
	sort.Slice(drum, func(i, j int) bool { return drum[i].number < drum[j].number })
	var won []string
	seen := map[string]bool{}
	for _, t := range drum {
		if !seen[t.id] && int64(len(won)) < rules.Units {
			seen[t.id] = true
			won = append(won, t.id)
		}
	}
	return won
}

func drawn(t interface{ Fatal(...any) }, rules allocator.LotteryRules, entrants []allocator.Entrant) []string {
	d, err := allocator.NewDraw(rules)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entrants {
		if err := d.Add(e); err != nil {
			t.Fatal(err)
		}
	}
	var ids []string
	for _, w := range d.Winners() {
		ids = append(ids, w.ID)
	}
	return ids
}

func TestADrawAgreesWithTheDrumAndForgetsTheOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(0, 60).Draw(rt, "entrants")
		var entrants []allocator.Entrant
		for i := range n {
			entrants = append(entrants, allocator.Entrant{ID: fmt.Sprintf("cell-1.e%03d", i), Cell: "cell-1", Tickets: rapid.IntRange(1, 5).Draw(rt, "tickets")})
		}
		rules := allocator.LotteryRules{Campaign: "c", SKU: "s", Units: rapid.Int64Range(1, 70).Draw(rt, "units"), Beacon: rapid.StringN(0, 8, 32).Draw(rt, "beacon")}
		copy(rules.Seed[:], rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(rt, "seed"))
		want := plainLots(rules, entrants)
		if got := drawn(rt, rules, entrants); fmt.Sprint(got) != fmt.Sprint(want) {
			rt.Fatalf("drew %v, the drum gives %v", got, want)
		}
		if got := drawn(rt, rules, rapid.Permutation(entrants).Draw(rt, "order")); fmt.Sprint(got) != fmt.Sprint(want) {
			rt.Fatalf("another order drew %v, want %v", got, want)
		}
		if int64(len(want)) != min(rules.Units, int64(n)) {
			rt.Fatalf("%d winners of %d entrants for %d units", len(want), n, rules.Units)
		}
	})
}

// Each part of the rules decides: whoever changes one after the fact draws others.
func TestEveryPartOfTheRulesDecidesADraw(t *testing.T) {
	var entrants []allocator.Entrant
	for i := range 100 {
		entrants = append(entrants, allocator.Entrant{ID: fmt.Sprintf("e%03d", i), Cell: "cell-1", Tickets: 1})
	}
	rules := allocator.LotteryRules{Campaign: "c", SKU: "s", Units: 10, Beacon: "b"}
	first := fmt.Sprint(drawn(t, rules, entrants))
	for name, change := range map[string]func(*allocator.LotteryRules){
		"campaign": func(r *allocator.LotteryRules) { r.Campaign = "d" },
		"sku":      func(r *allocator.LotteryRules) { r.SKU = "t" },
		"seed":     func(r *allocator.LotteryRules) { r.Seed[31] = 1 },
		"entrants": func(r *allocator.LotteryRules) { r.Entrants[0] = 1 },
		"beacon":   func(r *allocator.LotteryRules) { r.Beacon = "" },
	} {
		other := rules
		change(&other)
		if got := fmt.Sprint(drawn(t, other, entrants)); got == first {
			t.Errorf("another %s draws the same", name)
		}
	}
}

// Three tickets are three times the chance: of 3,000 draws of one unit between one entrant of
// three tickets and three of one, he wins half, within five standard deviations.
func TestTicketsAreChances(t *testing.T) {
	entrants := []allocator.Entrant{{ID: "gold", Cell: "a", Tickets: 3}, {ID: "x", Cell: "a", Tickets: 1}, {ID: "y", Cell: "a", Tickets: 1}, {ID: "z", Cell: "a", Tickets: 1}}
	const rounds = 3_000
	gold := 0
	for i := range rounds {
		rules := allocator.LotteryRules{Campaign: "c", SKU: "s", Units: 1}
		binary.BigEndian.PutUint64(rules.Seed[:], uint64(i))
		if drawn(t, rules, entrants)[0] == "gold" {
			gold++
		}
	}
	if off := math.Abs(float64(gold) - rounds/2); off > 5*math.Sqrt(rounds*0.25) {
		t.Errorf("three of six tickets won %d of %d", gold, rounds)
	}
}

func TestEntrantListRefusesWhatWouldHaveTwoLots(t *testing.T) {
	for name, c := range map[string]struct {
		entrants []allocator.Entrant
		rule     error
	}{
		"twice":        {[]allocator.Entrant{{"a", "c", 1}, {"a", "c", 1}}, allocator.ErrEntryOrder},
		"out of order": {[]allocator.Entrant{{"b", "c", 1}, {"a", "c", 1}}, allocator.ErrEntryOrder},
		"no id":        {[]allocator.Entrant{{"", "c", 1}}, allocator.ErrEntryUnnamed},
		"no cell":      {[]allocator.Entrant{{"a", "", 1}}, allocator.ErrCellUnnamed},
		"no ticket":    {[]allocator.Entrant{{"a", "c", 0}}, allocator.ErrTickets},
		"too many":     {[]allocator.Entrant{{"a", "c", 101}}, allocator.ErrTickets},
	} {
		l := allocator.NewEntrantList()
		var err error
		for _, e := range c.entrants {
			if err = l.Add(e); err != nil {
				break
			}
		}
		if !errors.Is(err, c.rule) || !errors.Is(err, allocator.ErrInvalid) {
			t.Errorf("%s: %v, want %v", name, err, c.rule)
		}
	}
	for units, want := range map[int64]bool{0: false, 1: true, allocator.MaxDrawn: true, allocator.MaxDrawn + 1: false} {
		if _, err := allocator.NewDraw(allocator.LotteryRules{Units: units}); (err == nil) != want || err != nil && !errors.Is(err, allocator.ErrUnitsToDraw) {
			t.Errorf("%d units: %v", units, err)
		}
	}
}

// The digest is part of the evidence: it may never change for the same list.
func TestEntrantListDigestIsFixed(t *testing.T) {
	l := allocator.NewEntrantList()
	for _, e := range []allocator.Entrant{{"cell-1.e1", "cell-1", 1}, {"cell-2.e1", "cell-2", 3}} {
		if err := l.Add(e); err != nil {
			t.Fatal(err)
		}
	}
	sum := sha256.New()
	for _, part := range []string{"cell-1.e1", "cell-1", "1", "cell-2.e1", "cell-2", "3"} {
		_ = binary.Write(sum, binary.BigEndian, uint32(len(part)))
		sum.Write([]byte(part))
	}
	if got, want := l.Digest(), sum.Sum(nil); hex.EncodeToString(got[:]) != hex.EncodeToString(want) || l.Count() != 2 {
		t.Errorf("digest %x of %d, want %x", got, l.Count(), want)
	}
	if c := allocator.Commitment([32]byte{}); hex.EncodeToString(c[:]) != "66687aadf862bd776c8fc18b8e9f8e20089714856ee233b3902a591d0d5f2925" {
		t.Errorf("commitment %x", c)
	}
}
