package admission

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
)

func openAt(t *testing.T, mode string, addrs []string) *Client {
	t.Helper()
	reg := prometheus.NewRegistry()
	password := ""
	if mode == Sentinel {
		password = testkit.RedisPassword
	}
	c, err := Open(Config{Cell: "cell-1", Mode: mode, Addrs: addrs, Password: password, Timeout: time.Second},
		Deps{Clock: clock.System(), Logger: slog.New(slog.DiscardHandler), Registry: reg})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// K50: the sentinels promoted the replica while the old primary goes on serving this process. At the
// next look the process leaves it; the copy on the new primary is not admitted into either, until a
// new build is installed there. Until the look the old primary alone was admitted into.
func TestAPromotedReplicaIsNotAdmittedInto(t *testing.T) {
	g := testkit.RedisReplicated(t, 1)
	ctx := testkit.Deadline(t)
	m := &mirror{t: t, Client: openAt(t, Sentinel, g.Addrs()), server: g.Primary, raw: g.Primary.Client(t)}
	m.install(t, image(skuScope, build1))
	want(t, m.one(ctx, ask("ann", "r1")), Accepted)
	g.CaughtUp(t)
	g.HidePrimary(t)
	g.AwaitPromoted(t)
	want(t, m.one(ctx, ask("bob", "r1")), Accepted) // on the old one: to be a lost admission

	if _, err := m.Acknowledge(ctx); err != nil {
		t.Fatal(err)
	}
	if r := m.one(ctx, ask("cid", "r1")); r.Outcome != NotReady {
		t.Fatalf("after the look: %s %v", r.Outcome, r.Err)
	}
	f, err := m.Facts(ctx, skuScope, testSKU)
	if err != nil || !f.Present || f.Stock != 9 {
		t.Fatalf("the copy %+v %v", f, err)
	}
	if now, err := m.Server(ctx); err != nil || f.Server == now {
		t.Fatalf("the copy passes for one built on %s: %v", now, err)
	}
	if n := m.raw.XLen(ctx, skuScope.at(build1).stream()).Val(); n != 2 {
		t.Fatalf("%d entries on the old primary, want ann's and bob's", n)
	}
	m.install(t, image(skuScope, build2))
	want(t, m.one(ctx, ask("cid", "r1")), Accepted)
	if n := m.raw.Exists(ctx, skuScope.at(build2).stream()).Val(); n != 0 {
		t.Fatal("the new build is on the old primary")
	}
}

// A primary that lost the replicas it must have takes no write: PAUSED, and not fit to be built on.
func TestAPrimaryWithoutItsReplicas(t *testing.T) {
	g := testkit.RedisReplicated(t, 1, "--min-replicas-to-write", "1", "--min-replicas-max-lag", "10")
	ctx := testkit.Deadline(t)
	m := &mirror{t: t, Client: openAt(t, Sentinel, g.Addrs()), server: g.Primary, raw: g.Primary.Client(t)}
	m.install(t, image(skuScope, build1))
	want(t, m.one(ctx, ask("ann", "r1")), Accepted)
	if err := m.Writable(ctx, skuScope); err != nil {
		t.Fatal(err)
	}
	g.CutReplica(t)
	if r := m.one(ctx, ask("bob", "r1")); r.Outcome != Paused || !errors.Is(r.Err, ErrUnavailable) {
		t.Fatalf("%s %v", r.Outcome, r.Err)
	}
	if err := m.Writable(ctx, skuScope); !errors.Is(err, ErrUnavailable) {
		t.Fatalf("writable: %v", err)
	}
	if s := m.stock(t, skuScope, testSKU); s != 9 {
		t.Fatalf("stock %d", s)
	}
}

// scopesOn are campaigns' mirrors, one on each node of a cluster in the order of its masters.
func scopesOn(t *testing.T, n *testkit.RedisNodes) []Scope {
	t.Helper()
	out := make([]Scope, len(n.Masters))
	for found, i := 0, 0; found < len(out); i++ {
		s := Scope{Campaign: ids.CampaignID(fmt.Sprint("sale-", i)), SKU: testSKU}
		at := slices.Index(n.Masters, n.Holder(t, s.metaKey()))
		if out[at].SKU == "" {
			out[at] = s
			found++
		}
	}
	return out
}

// K47, K61: a cluster of three. Mirrors lie on different nodes, one pipeline reaches all; odd ids stay in
// their slot; every master has the library, the one that a failover made too; and what the dead one
// had must be built anew before anybody is admitted.
func TestClusterOfThreeWithAFailover(t *testing.T) {
	n := testkit.RedisCluster(t, 3, 1)
	ctx := testkit.Deadline(t)
	c := openAt(t, Cluster, n.Addrs()[1:])
	m := &mirror{t: t, Client: c}
	scopes := scopesOn(t, n)
	for _, s := range scopes {
		m.install(t, image(s, build1))
	}
	var asks []Ask
	for _, user := range oddUsers {
		for _, s := range scopes {
			a := ask(user, "r1")
			a.Scope, a.Nonce = s, "}{"+user
			asks = append(asks, a)
		}
	}
	for _, outcome := range []Outcome{Accepted, Replayed} {
		for _, r := range c.Admit(ctx, asks) {
			want(t, r, outcome)
		}
	}
	for i, s := range scopes {
		keys, err := n.Masters[i].Client(t).Keys(ctx, s.prefix()+"*").Result()
		if err != nil || len(keys) < 5+len(oddUsers) {
			t.Fatalf("%d keys of %s on its node, %v", len(keys), s.Tag(), err)
		}
		page, err := c.Unpublished(ctx, s, 0, "", 100)
		if err != nil || len(page.Entries) != len(oddUsers) {
			t.Fatalf("%s: %d entries, %v", s.Tag(), len(page.Entries), err)
		}
		list, err := c.Outstanding(ctx, s, testSKU, 0, 100)
		if err != nil || len(list) != len(oddUsers) {
			t.Fatalf("%s: %d outstanding, %v", s.Tag(), len(list), err)
		}
	}

	before, err := c.Server(ctx)
	if err != nil {
		t.Fatal(err)
	}
	n.Masters[0].Kill(t)
	n.AwaitPromoted(t, 0)
	a := ask("late", "r1")
	a.Scope = scopes[0]
	testkit.Eventually(t, waitFor, func() error {
		if r := c.Admit(ctx, []Ask{a})[0]; r.Outcome == Accepted {
			t.Fatal("the promoted replica was admitted into")
		}
		_, err := c.Acknowledge(ctx)
		return err
	})
	if after, err := c.Server(ctx); err != nil || after == before {
		t.Fatalf("the servers are still %s, %v", after, err)
	}
	for _, s := range scopes { // the hot pool's connections to nodes that live were kept
		a.Scope = s
		if r := c.Admit(ctx, []Ask{a})[0]; r.Outcome != NotReady {
			t.Fatalf("%s before its rebuild: %s %v", s.Tag(), r.Outcome, r.Err)
		}
	}
	m.install(t, image(scopes[0], build2))
	a.Scope = scopes[0]
	testkit.Eventually(t, waitFor, func() error { // as a look does; what a node says of the others may be old still
		if _, err := c.Acknowledge(ctx); err != nil {
			return err
		}
		r := m.one(ctx, a)
		if r.Outcome == Accepted || r.Outcome == Paused {
			return r.Err
		}
		t.Fatalf("%s %v", r.Outcome, r.Err)
		return nil
	})
	if _, loaded, err := c.Loaded(ctx); err != nil || !loaded {
		t.Fatalf("library loaded: %t %v", loaded, err)
	}
}

// A slot moves to another node under a running cell (MOVED): the mirror moves with it and admits on.
func TestASlotThatMoves(t *testing.T) {
	n := testkit.RedisCluster(t, 2, 0)
	ctx := testkit.Deadline(t)
	c := openAt(t, Cluster, n.Addrs())
	m := &mirror{t: t, Client: c}
	s := scopesOn(t, n)[0]
	m.install(t, image(s, build1))
	a := ask("ann", "r1")
	a.Scope = s
	first := want(t, m.one(ctx, a), Accepted)
	n.MoveSlot(t, s.metaKey(), 0, 1)
	if r := want(t, m.one(ctx, a), Replayed); r.Reservation != first.Reservation {
		t.Fatalf("replayed as %s", r.Reservation)
	}
	b := ask("bob", "r1")
	b.Scope = s
	want(t, m.one(ctx, b), Accepted)
	if f, err := c.Facts(ctx, s, testSKU); err != nil || f.Stock != 8 || f.StreamLength != 2 {
		t.Fatalf("%+v %v", f, err)
	}
}

// K48: an evicting policy at runtime is noticed, and a server that did evict counts as another one when
// the policy is cured: what went can be seen in no key that is left.
func TestEvictionMakesAnotherServer(t *testing.T) {
	m := newMirror(t, image(skuScope, build1))
	ctx := testkit.Deadline(t)
	before, err := m.Server(ctx)
	if err != nil {
		t.Fatal(err)
	}
	set := func(key, value string) {
		t.Helper()
		if err := m.raw.ConfigSet(ctx, key, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	set("maxmemory-policy", "volatile-lru")
	if _, err := m.Acknowledge(ctx); !errors.Is(err, ErrUnfit) || !strings.Contains(err.Error(), "volatile-lru") {
		t.Fatalf("acknowledged an evicting server: %v", err)
	}
	set("maxmemory-policy", "noeviction") // nothing was evicted yet: the same server
	if now, err := m.Acknowledge(ctx); err != nil || now != before {
		t.Fatalf("%s %v, was %s", now, err, before)
	}
	if _, ok := m.Expected(skuScope); !ok {
		t.Fatal("forgotten for nothing")
	}
	want(t, m.one(ctx, ask("ann", "r1")), Accepted) // its record and nonce expire: they can be evicted
	set("maxmemory-policy", "volatile-lru")
	set("maxmemory", "1")
	_ = m.raw.Set(ctx, "filler", "x", 0).Err() // refused in the end, after everything volatile went
	set("maxmemory", "0")
	set("maxmemory-policy", "noeviction")
	now, err := m.Acknowledge(ctx)
	if err != nil || now == before {
		t.Fatalf("%s %v after eviction", now, err)
	}
	if r := m.one(ctx, ask("bob", "r1")); r.Outcome != NotReady {
		t.Fatalf("%s %v", r.Outcome, r.Err)
	}
}
