package fencing

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

func full() Witness {
	return Witness{
		Identity: "1/1", Version: 3, Stocks: map[SKU]Mark{phone: {AdjustmentVersion: 3, LastNumber: 2, StockVersion: 40}},
		Routes: map[string]int64{phone.Campaign: 5}, Builds: map[Scope]BuildMark{{Campaign: phone.Campaign, Key: phone.SKU}: {Fence: 3, Count: 2}},
		Positions: map[Partition]PositionMark{{Topic: "t"}: {TopicID: "id", Next: 90}},
	}
}

// TestLacks changes one thing at a time: everything that went back is named, and nothing else is.
func TestLacks(t *testing.T) {
	for name, c := range map[string]struct {
		change func(w *Witness)
		lacks  string
	}{
		"nothing":                  {func(*Witness) {}, ""},
		"another history":          {func(w *Witness) { w.Identity = "1/2" }, ""},
		"a consumer began again":   {func(w *Witness) { w.Positions = nil }, ""},
		"settled meanwhile":        {func(w *Witness) { *w = Witness{Version: 3, Settled: map[string]bool{phone.Campaign: true}} }, ""},
		"more stock":               {func(w *Witness) { w.Stocks[phone] = Mark{3, 2, 41} }, ""},
		"restored, numbers begin":  {func(w *Witness) { w.Version, w.Stocks[phone] = 4, Mark{4, 0, 41} }, ""},
		"fence version":            {func(w *Witness) { w.Version = 2 }, "fence version 2"},
		"no fence row":             {func(w *Witness) { w.Version = 0 }, "fence version 0"},
		"stock version":            {func(w *Witness) { w.Stocks[phone] = Mark{3, 2, 39} }, "stock version 39"},
		"adjustment":               {func(w *Witness) { w.Stocks[phone] = Mark{3, 1, 40} }, "adjustment 1"},
		"adjustments of a version": {func(w *Witness) { w.Stocks[phone] = Mark{2, 9, 40} }, "version 2"},
		"a SKU":                    {func(w *Witness) { delete(w.Stocks, phone) }, "adjustment 0"},
		"route":                    {func(w *Witness) { w.Routes[phone.Campaign] = 4 }, "route version 4"},
		"build":                    {func(w *Witness) { w.Builds[Scope{phone.Campaign, phone.SKU}] = BuildMark{3, 1} }, "build 3.1"},
		"build of a version":       {func(w *Witness) { w.Builds[Scope{phone.Campaign, phone.SKU}] = BuildMark{2, 9} }, "build 2.9"},
	} {
		now := full()
		c.change(&now)
		switch got := full().Lacks(now); {
		case c.lacks == "" && got != "", c.lacks != "" && !strings.Contains(got, c.lacks):
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestRaiseNeverGoesBack: whatever readings come in whatever order, the highest lacks none of them.
func TestRaiseNeverGoesBack(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 7))
	for range 300 {
		var top Witness
		var all []Witness
		for range 6 {
			w := full()
			w.Version = Version(1 + r.IntN(4))
			w.Stocks[phone] = Mark{int64(r.IntN(3)), int64(r.IntN(5)), int64(r.IntN(50))}
			w.Routes[phone.Campaign] = int64(r.IntN(9))
			w.Builds[Scope{phone.Campaign, phone.SKU}] = BuildMark{int64(r.IntN(3)), int64(r.IntN(3))}
			all, top = append(all, w), top.Raise(w)
		}
		for _, w := range all {
			if lacks := w.Lacks(top); lacks != "" {
				t.Fatalf("%+v lacks %s", top, lacks)
			}
		}
	}
}

func TestDecodeWitness(t *testing.T) {
	w, err := DecodeWitness([]byte(`{"identity":"7/1","fence_version":2,"stocks":[{"campaign_id":"double-eleven","sku_id":"phone-x","adjustment_version":2,"last_number":3,"stock_version":9}],
		"routes":[{"campaign_id":"double-eleven","route_version":4}],"builds":[{"campaign_id":"double-eleven","scope":"phone-x","fence_version":2,"count":1}],
		"positions":[{"topic":"t","partition":1,"topic_id":"x","next_offset":8,"leader_epoch":0}],"settled_campaigns":["old"]}`))
	if err != nil || w.Stocks[phone] != (Mark{2, 3, 9}) || w.Routes[phone.Campaign] != 4 || w.Builds[Scope{phone.Campaign, phone.SKU}] != (BuildMark{2, 1}) ||
		w.Positions[Partition{"t", 1}].Next != 8 || !w.Settled["old"] || w.Version != 2 {
		t.Errorf("%+v %v", w, err)
	}
	for _, broken := range []string{"", "{}", `{"identity":"7/1","fence_version":-1}`, `{"identity":7}`} {
		if _, err := DecodeWitness([]byte(broken)); !errors.Is(err, ErrWitness) {
			t.Errorf("%q: %v", broken, err)
		}
	}
}

// TestPlanRecoveryKeepsTheOrderOfOld: by version and number, each version's SEAL last, from any order.
func TestPlanRecoveryKeepsTheOrderOfOld(t *testing.T) {
	one := func(id string, version Version, number int64, kind AdjustmentKind) Lost {
		return Lost{ID: id, SKU: phone, Version: version, Number: number, Kind: kind, Units: 1, Outcome: OutcomeApplied}
	}
	want := []Lost{
		one("a", 1, 1, KindGrant), one("b", 1, 2, KindReturn), one("seal-2", 2, 0, KindSeal), one("c", 3, 1, KindGrant), one("d", 3, 2, KindGrant), one("seal-4", 4, 0, KindSeal),
	}
	for seed := range uint64(50) {
		mixed := append([]Lost(nil), want...)
		rand.New(rand.NewPCG(seed, 1)).Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
		got, err := PlanRecovery(mixed)
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("%v %v", got, err)
		}
	}
	unknown := one("x", 1, 3, KindGrant)
	unknown.Outcome = OutcomeUnknown
	for name, broken := range map[string]Lost{
		"number used twice": one("x", 1, 2, KindGrant), "id used twice": one("a", 5, 1, KindGrant), "no outcome": unknown,
		"seal with a number": one("x", 5, 1, KindSeal), "grant without": one("x", 5, 0, KindGrant), "written off": one("x", 5, 0, KindWriteOff),
	} {
		if _, err := PlanRecovery(append([]Lost{broken}, want...)); !errors.Is(err, ErrReplay) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
