package limit_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/cellquota/cellquota/edge/limit"
	"github.com/cellquota/cellquota/edge/route"
	"github.com/cellquota/cellquota/internal/clock"
)

func limiter(t *testing.T, c limit.Ceilings) (*limit.Limiter, *clock.Manual) {
	t.Helper()
	clk := clock.NewManual(time.Unix(1000, 0))
	l, err := limit.New(c, clk)
	if err != nil {
		t.Fatal(err)
	}
	return l, clk
}

// A bucket gives its burst, then its rate, and says how long to wait.
func TestRate(t *testing.T) {
	l, clk := limiter(t, limit.Ceilings{Buckets: 100})
	rules := &route.Rules{User: route.Rate{PerSecond: 2, Burst: 5}}
	allow := func(class limit.Class, user string) (time.Duration, bool) {
		return l.Allow(class, "c", rules, limit.Caller{User: user, Network: "n"})
	}
	for i := range 5 {
		if _, ok := allow(limit.First, "u"); !ok {
			t.Fatalf("call %d of the burst is refused", i)
		}
	}
	wait, ok := allow(limit.First, "u")
	if ok || wait <= 0 || wait > 500*time.Millisecond {
		t.Fatalf("sixth call: %v, wait %v", ok, wait)
	}
	clk.Advance(wait + time.Millisecond)
	if _, ok := allow(limit.First, "u"); !ok {
		t.Error("refused after the wait it was told")
	}
	for _, other := range []struct {
		class limit.Class
		user  string
	}{{limit.Repeat, "u"}, {limit.Claim, "u"}, {limit.Other, "u"}, {limit.First, "v"}} {
		if _, ok := allow(other.class, other.user); !ok {
			t.Errorf("%v has no bucket of its own", other)
		}
	}
	if _, ok := l.Allow(limit.First, "other", rules, limit.Caller{User: "u"}); !ok {
		t.Error("another campaign shares the bucket")
	}
	// New rules hold from the next call on.
	rules = &route.Rules{User: route.Rate{PerSecond: 1000, Burst: 1000}}
	allow(limit.First, "u")
	clk.Advance(time.Second)
	for i := range 100 {
		if _, ok := allow(limit.First, "u"); !ok {
			t.Fatalf("call %d refused under the new rule", i)
		}
	}
}

// Whom a user's own limit refuses takes nothing from those who share his network.
func TestUserFirst(t *testing.T) {
	l, _ := limiter(t, limit.Ceilings{Buckets: 100})
	rules := &route.Rules{User: route.Rate{PerSecond: 1, Burst: 1}, Network: route.Rate{PerSecond: 1, Burst: 3}}
	for range 50 {
		l.Allow(limit.First, "c", rules, limit.Caller{User: "greedy", Network: "n"})
	}
	for _, user := range []string{"a", "b"} {
		if _, ok := l.Allow(limit.First, "c", rules, limit.Caller{User: user, Network: "n"}); !ok {
			t.Errorf("%s is refused for what another did", user)
		}
	}
	if _, ok := l.Allow(limit.First, "c", rules, limit.Caller{User: "c", Network: "n"}); ok {
		t.Error("the network has no limit")
	}
}

// The number of buckets is bounded.
func TestBuckets(t *testing.T) {
	l, _ := limiter(t, limit.Ceilings{Buckets: 10, User: route.Rate{PerSecond: 1, Burst: 1}})
	for i := range 10_000 {
		l.Ceiling(limit.Other, limit.Caller{User: fmt.Sprint(i)})
	}
	refused := 0
	for i := range 10_000 {
		if _, ok := l.Ceiling(limit.Other, limit.Caller{User: fmt.Sprint(i)}); !ok {
			refused++
		}
	}
	if refused > 1000 {
		t.Errorf("%d buckets were kept, room is for 10", refused)
	}
}

func TestNetworks(t *testing.T) {
	n, err := limit.NewNetworks([]string{"10.0.0.0/8", "192.0.2.7", "2001:db8:1::/48"})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct{ peer, forwarded, want string }{
		{"198.51.100.1:1", "203.0.113.1", "198.51.100.1"},
		{"10.0.0.1:1", "", "10.0.0.1"},
		{"10.0.0.1:1", "203.0.113.1", "203.0.113.1"},
		{"10.0.0.1:1", "1.1.1.1, 203.0.113.1, 192.0.2.7", "203.0.113.1"},
		{"10.0.0.1:1", "1.1.1.1, nonsense, 192.0.2.7", "192.0.2.7"},
		{"10.0.0.1:1", "nonsense", "10.0.0.1"},
		{"[::ffff:10.0.0.1]:1", "203.0.113.1", "203.0.113.1"},
		{"[2001:db8:1::5]:1", "2001:db8:2:3:4::1", "2001:db8:2:3::/64"},
		{"[2001:db8:9::5%eth0]:1", "203.0.113.1", "2001:db8:9::/64"},
		{"nonsense", "203.0.113.1", "unknown"},
	} {
		r := &http.Request{RemoteAddr: row.peer, Header: http.Header{}}
		if row.forwarded != "" {
			r.Header.Set("X-Forwarded-For", row.forwarded)
		}
		if got := n.Of(r); got != row.want {
			t.Errorf("%s, %q: %s, want %s", row.peer, row.forwarded, got, row.want)
		}
	}
	for _, bad := range []string{"x", "10.0.0.0/33", ""} {
		if _, err := limit.NewNetworks([]string{bad}); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func TestBoundsAtOnce(t *testing.T) {
	in := limit.NewInflight(2)
	if first, second := in.Enter(), in.Enter(); !first || !second || in.Enter() || in.Now() != 2 {
		t.Fatalf("two places: %d taken", in.Now())
	}
	in.Leave()
	if !in.Enter() {
		t.Error("a place given back is not free")
	}
	c := limit.NewCrowd(1)
	if !c.Enter("a") || c.Enter("a") || !c.Enter("b") {
		t.Error("one place for each user")
	}
	c.Leave("a")
	if !c.Enter("a") {
		t.Error("a place given back is not free")
	}
}

// A caller gets all of his places or none, and what one dimension refuses takes nothing of the others.
func TestCrowds(t *testing.T) {
	c := limit.NewCrowds(1, 2, 3)
	who := func(user, device string) limit.Caller { return limit.Caller{User: user, Device: device, Network: "n"} }
	for i, row := range []struct {
		who  limit.Caller
		want bool
	}{
		{who("a", "d"), true},
		{who("a", "d"), false},
		{who("b", "d"), true},
		{who("c", "d"), false},
		{who("c", ""), true},
		{who("d", "e"), false}, // three from the network
	} {
		if got := c.Enter(row.who); got != row.want {
			t.Fatalf("caller %d: %v", i, got)
		}
	}
	c.Leave(who("a", "d"))
	if !c.Enter(who("d", "e")) { // refused before by the network alone: his user and device are free
		t.Error("a refusal kept places")
	}
	c.Leave(who("b", "d"))
	if !c.Enter(who("a", "d")) {
		t.Error("places given back are not free")
	}
	none := limit.NewCrowds(0, 0, 0)
	for range 1000 {
		if !none.Enter(who("a", "d")) {
			t.Fatal("no bound refuses")
		}
	}
}
