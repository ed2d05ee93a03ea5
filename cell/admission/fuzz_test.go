package admission

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
	eventsv1 "github.com/cellquota/cellquota/proto/cellquota/events/v1"
	cellquotav1 "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Ids that could break a key, a mark or a slot.
var (
	oddUsers    = []string{"ann", "b{o}b", "c:d", "}{", "e|f"}
	oddDomains  = []string{"", "east", "nowhere"}
	fuzzSKUs    = []ids.SKUID{testSKU, otherSKU}
	fuzzEffects = []string{"e1", "e2", "e3", "credit:a1"}
)

// fuzz drives the library on a real Redis and its twin side by side.
type fuzz struct {
	*rapid.T
	m        *mirror
	tw       *twin
	expected ids.Build
	granted  []Granted
	count    int64
}

func (f *fuzz) user() ids.UserID { return ids.UserID(rapid.SampledFrom(oddUsers).Draw(f.T, "user")) }
func (f *fuzz) sku() ids.SKUID   { return rapid.SampledFrom(fuzzSKUs).Draw(f.T, "sku") }
func (f *fuzz) request() ids.RequestID {
	return ids.RequestID(rapid.SampledFrom([]string{"r1", "r2", "r-3"}).Draw(f.T, "request"))
}

// agree compares what a caller can see of two answers.
func (f *fuzz) agree(what string, got, want Result) {
	f.Helper()
	got.Build, got.Granted, got.AdmittedAtMS, got.OpensInMS, got.streamID = ids.Build{}, nil, 0, 0, ""
	if got != want {
		f.Fatalf("%s:\n redis %+v\n twin  %+v", what, got, want)
	}
}

func (f *fuzz) same(what string, got, want Change, err error) {
	f.Helper()
	if err != nil || got != want {
		f.Fatalf("%s: redis %s %v, twin %s", what, got, err, want)
	}
}

func (f *fuzz) admit() {
	a := Ask{
		Scope: wideScope, SKU: f.sku(), User: f.user(), Request: f.request(), Quantity: rapid.Int32Range(1, 4).Draw(f.T, "quantity"),
		Domain: rapid.SampledFrom(oddDomains).Draw(f.T, "domain"), Nonce: fmt.Sprint("n", rapid.IntRange(0, 9).Draw(f.T, "nonce")),
		PermitExpiresAtMS: farAhead,
	}
	expired := rapid.IntRange(0, 9).Draw(f.T, "expired") == 0
	if expired {
		a.PermitExpiresAtMS = 1
	}
	got := f.m.one(f.Context(), a)
	f.agree(fmt.Sprintf("admit %+v", a), got, f.tw.admit(a, f.expected, expired))
	if got.Granted != nil {
		f.granted = append(f.granted, *got.Granted)
	}
}

func (f *fuzz) effect() {
	m := &eventsv1.MirrorEffect{
		EffectId: rapid.SampledFrom(fuzzEffects).Draw(f.T, "effect"), CampaignId: string(wideScope.Campaign), SkuId: string(f.sku()),
		StockDelta: rapid.Int32Range(-3, 3).Draw(f.T, "delta"), StockVersion: rapid.Int64Range(4, 7).Draw(f.T, "version"),
		Settle: rapid.Bool().Draw(f.T, "settle"), Mark: eventsv1.MarkAction(rapid.Int32Range(0, 2).Draw(f.T, "mark")),
		UserId: string(f.user()), RequestId: string(f.request()), ReservationId: "cell-1.rother",
		WinnerReservationId: "cell-1.rwinner", WinnerRequestId: "r2", WinnerSkuId: rapid.SampledFrom([]string{"", string(otherSKU)}).Draw(f.T, "winner"),
		State:  cellquotav1.RequestState(rapid.SampledFrom([]int32{0, 3, 4, 5, 6, 7, 8}).Draw(f.T, "state")),
		Reason: cellquotav1.Reason(rapid.Int32Range(0, 12).Draw(f.T, "reason")), AggregateVersion: rapid.Int64Range(0, 5).Draw(f.T, "aggregate"),
		OrderId: rapid.SampledFrom([]string{"", "cell-1.oX"}).Draw(f.T, "order"), ExpiresAtMs: rapid.SampledFrom([]int64{0, farAhead}).Draw(f.T, "expires"),
	}
	if rapid.IntRange(0, 4).Draw(f.T, "anonymous") == 0 {
		m.UserId, m.RequestId, m.ReservationId = "", "", ""
	}
	if len(f.granted) > 0 && rapid.IntRange(0, 3).Draw(f.T, "own") != 0 {
		g := rapid.SampledFrom(f.granted).Draw(f.T, "granted")
		m.SkuId, m.UserId, m.RequestId, m.ReservationId = string(g.SKU), string(g.User), string(g.Request), string(g.Reservation)
		m.EffectId = rapid.SampledFrom([]string{"settle-", "release-"}).Draw(f.T, "id") + m.ReservationId
	}
	switch rapid.IntRange(0, 2).Draw(f.T, "giveback") {
	case 0:
		m.AdmissionBuild = &cellquotav1.Build{FenceVersion: f.tw.build.Fence, Count: f.tw.build.Count}
	case 1:
		m.AdmissionBuild = &cellquotav1.Build{FenceVersion: 1, Count: 99}
	}
	e := Effect{Scope: wideScope, Build: f.tw.build, Effect: m}
	if rapid.IntRange(0, 9).Draw(f.T, "other build") == 0 {
		e.Build.Count += 7
	}
	want := f.tw.effect(e)
	r := f.m.ApplyEffects(f.Context(), []Effect{e})[0]
	f.same(fmt.Sprintf("effect %v", m), r.Change, want, r.Err)
}

func (f *fuzz) giveBack() {
	r := Return{
		Scope: wideScope, SKU: f.sku(), AdjustmentID: fmt.Sprint("a", rapid.IntRange(0, 3).Draw(f.T, "id")),
		Number: rapid.Int64Range(1, 6).Draw(f.T, "number"), Units: rapid.Int32Range(1, 12).Draw(f.T, "units"),
	}
	if rapid.Bool().Draw(f.T, "debit") {
		got, err := f.m.DebitReturn(f.Context(), r)
		f.same(fmt.Sprintf("debit %+v", r), got.Change, f.tw.debit(r), err)
		return
	}
	got, err := f.m.CreditReturn(f.Context(), r)
	f.same(fmt.Sprintf("credit %+v", r), got.Change, f.tw.credit(r), err)
}

func (f *fuzz) acked() {
	if len(f.granted) == 0 {
		return
	}
	some := rapid.SliceOfN(rapid.SampledFrom(f.granted), 1, 5).Draw(f.T, "granted")
	if err := f.m.Acked(f.Context(), some); err != nil {
		f.Fatal(err)
	}
	for _, g := range some {
		if g.Build == f.tw.build {
			f.tw.acked(g)
		}
	}
}

func (f *fuzz) look() {
	l := LookupAsk{Scope: wideScope, SKU: f.sku(), User: f.user(), Request: f.request()}
	f.agree(fmt.Sprintf("lookup %+v", l), f.m.Lookup(f.Context(), []LookupAsk{l})[0], f.tw.lookup(l, f.expected))
	p := PrecheckAsk{Scope: wideScope, SKU: f.sku(), User: f.user(), Domain: rapid.SampledFrom(oddDomains).Draw(f.T, "domain")}
	f.agree(fmt.Sprintf("precheck %+v", p), f.m.Precheck(f.Context(), []PrecheckAsk{p})[0], f.tw.precheck(p, f.expected))
}

func (f *fuzz) rules() {
	applied := func(c Change, err error) {
		want := Applied
		if !f.tw.present {
			want = Absent
		}
		f.same("set", c, want, err)
	}
	switch rapid.IntRange(0, 3).Draw(f.T, "what") {
	case 0:
		g := Gate{
			SKU:   f.sku(),
			State: cellquotav1.GateState(rapid.SampledFrom([]int32{1, 1, 2, 3, 4, 5, 6}).Draw(f.T, "gate")), Bound: rapid.Int64Range(0, 4).Draw(f.T, "bound"),
		}
		applied(f.m.SetGate(f.Context(), wideScope, f.tw.build, g))
		if f.tw.present {
			f.tw.skus[g.SKU].gate, f.tw.skus[g.SKU].bound = g.State, g.Bound
		}
	case 1:
		side := rapid.SampledFrom([]int{-1, 0, 0, 0, 1}).Draw(f.T, "window")
		w := map[int]Window{-1: {OpenAtMS: farAhead, CloseAtMS: farAhead + 1}, 0: {OpenAtMS: 1, CloseAtMS: farAhead}, 1: {OpenAtMS: 1, CloseAtMS: 2}}[side]
		applied(f.m.SetWindow(f.Context(), wideScope, f.tw.build, w))
		if f.tw.present {
			f.tw.window = side
		}
	case 2:
		var set BucketSet
		if rapid.Bool().Draw(f.T, "half") {
			set.Add(0, ids.Buckets/2)
		} else {
			set.Add(0, ids.Buckets-1)
		}
		applied(f.m.SetBuckets(f.Context(), wideScope, f.tw.build, "east", set))
		if f.tw.present {
			f.tw.owned["east"] = func(u ids.UserID) bool { return set.Has(int(ids.Bucket(u))) }
		}
	default:
		if rapid.IntRange(0, 5).Draw(f.T, "fence") == 0 {
			if _, err := f.m.RaiseFence(f.Context(), wideScope, 2); err != nil {
				f.Fatal(err)
			}
			if f.tw.present {
				f.tw.fence = max(f.tw.fence, 2)
			}
		}
	}
}

// harm loses something, then or later the mirror is built anew.
func (f *fuzz) harm() {
	switch rapid.IntRange(0, 9).Draw(f.T, "harm") {
	case 0, 1:
		if err := f.m.raw.FunctionFlush(f.Context()).Err(); err != nil {
			f.Fatal(err)
		}
	case 2:
		if err := f.m.raw.ScriptFlush(f.Context()).Err(); err != nil {
			f.Fatal(err)
		}
	case 3, 4, 5:
		f.install()
	case 6:
		f.del("record:" + string(f.sku()) + ":" + string(f.request()) + ":" + string(f.user()))
	default:
		f.del(rapid.SampledFrom([]string{"meta", "marks", "applied", "stock:" + string(testSKU), "stock:" + string(otherSKU)}).Draw(f.T, "key"))
	}
}

func (f *fuzz) del(name string) {
	key := string(wideScope.at(f.tw.build)) + name
	if name == "meta" {
		key = wideScope.metaKey()
	}
	if err := f.m.raw.Del(f.Context(), key).Err(); err != nil {
		f.Fatal(err)
	}
	f.tw.drop(name)
}

func (f *fuzz) install() {
	f.count++
	im := image(wideScope, ids.Build{Fence: f.tw.build.Fence, Count: f.count})
	if err := f.m.Install(f.Context(), im); err != nil {
		f.Fatal(err)
	}
	f.m.Expect(wideScope, im.Build)
	f.tw, f.expected, f.granted = newTwin(im), im.Build, nil
}

// check compares the counters of both sides after every step.
func (f *fuzz) check() {
	f.Helper()
	for _, sku := range fuzzSKUs {
		got, err := f.m.Facts(f.Context(), wideScope, sku)
		if err != nil {
			f.Fatal(err)
		}
		s := f.tw.skus[sku]
		if got.Present != f.tw.present {
			f.Fatalf("present %t, twin %t", got.Present, f.tw.present)
		}
		if !got.Present {
			continue
		}
		var units int64
		for _, u := range s.waiting {
			units += u
		}
		type figures struct{ stock, outstanding, units, admitted, refused, stream int64 }
		have := figures{got.Stock, got.Outstanding, got.OutstandingUnits, got.Admitted, got.RefusedForStock, got.StreamLength}
		want := figures{s.stock, int64(len(s.waiting)), units, s.admitted, s.refused, int64(len(f.tw.stream))}
		if have != want {
			f.Fatalf("%s: redis %+v, twin %+v", sku, have, want)
		}
		if whole := s.hasStock && f.tw.hasMarks && f.tw.hasApplied; got.Whole != whole {
			f.Fatalf("whole %t, twin %t", got.Whole, whole)
		}
	}
}

// The library against its twin, step by step, on a real Redis.
func TestLibraryAgainstTwin(t *testing.T) {
	m := newMirror(t, image(wideScope, build1))
	run := int64(0)
	rapid.Check(t, func(t *rapid.T) {
		if err := m.raw.FlushDB(testkit.Deadline(m.t)).Err(); err != nil {
			t.Fatal(err)
		}
		run++
		f := &fuzz{T: t, m: m, tw: &twin{build: ids.Build{Fence: 1}}, count: run * 1000}
		f.install()
		t.Repeat(map[string]func(*rapid.T){
			"admit": func(*rapid.T) { f.admit() }, "admit again": func(*rapid.T) { f.admit() }, "admit more": func(*rapid.T) { f.admit() },
			"effect": func(*rapid.T) { f.effect() }, "effects": func(*rapid.T) { f.effect() },
			"return": func(*rapid.T) { f.giveBack() }, "acked": func(*rapid.T) { f.acked() }, "look": func(*rapid.T) { f.look() },
			"rules": func(*rapid.T) { f.rules() }, "harm": func(*rapid.T) { f.harm() },
			"": func(*rapid.T) { f.check() },
		})
	})
}

// Names that a key is made of stay apart, and every key of a mirror is in one slot.
func TestKeysNeitherCollideNorLeaveTheSlot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		part := rapid.SampledFrom([]string{"a", "a-b", "A.b", "_"})
		free := rapid.StringOfN(rapid.RuneFrom([]rune("ab:{}|-")), 1, 8, -1)
		k := skuScope.at(build1)
		type name struct{ sku, request, user string }
		x := name{part.Draw(t, "sku"), part.Draw(t, "request"), free.Draw(t, "user")}
		y := name{part.Draw(t, "sku"), part.Draw(t, "request"), free.Draw(t, "user")}
		key := func(n name) string { return k.record(ids.SKUID(n.sku), ids.RequestID(n.request), ids.UserID(n.user)) }
		if (x == y) != (key(x) == key(y)) {
			t.Fatalf("%+v and %+v: %s and %s", x, y, key(x), key(y))
		}
		for _, made := range []string{key(x), k.nonce(x.user), k.buckets(x.user), k.stock(ids.SKUID(x.sku)), skuScope.metaKey()} {
			open := strings.IndexByte(made, '{')
			end := open + strings.IndexByte(made[open:], '}')
			if made[open+1:end] != skuScope.Tag() {
				t.Fatalf("%s hashes by %s", made, made[open+1:end])
			}
		}
	})
}
