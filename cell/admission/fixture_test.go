package admission

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
	cellquotav1 "github.com/cellquota/cellquota/proto/cellquota/v1"
)

const (
	testSKU  = ids.SKUID("phone-x")
	otherSKU = ids.SKUID("tablet.y")
	farAhead = 1 << 42 // Unix milliseconds in the year 2109
	waitFor  = 20 * time.Second
)

var (
	skuScope  = Scope{Campaign: "double-eleven", SKU: testSKU}
	wideScope = Scope{Campaign: "double-eleven"}
	build1    = ids.Build{Fence: 1, Count: 1}
	build2    = ids.Build{Fence: 1, Count: 2}
)

// mirror is a client over a real Redis with one mirror installed and expected.
type mirror struct {
	*Client
	t      testing.TB
	server *testkit.RedisServer
	raw    *redis.Client
	reg    *prometheus.Registry
}

func openClient(t testing.TB, addr string, mode string) (*Client, *prometheus.Registry) {
	t.Helper()
	reg := prometheus.NewRegistry()
	c, err := Open(Config{Cell: "cell-1", Mode: mode, Addrs: []string{addr}, Timeout: time.Second},
		Deps{Clock: clock.System(), Logger: slog.New(slog.DiscardHandler), Registry: reg})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c, reg
}

// image is a fresh mirror of one or two SKUs (scope CAMPAIGN has both) with 10
// units each, everything owned, open now and far ahead.
func image(scope Scope, build ids.Build) Image {
	var all BucketSet
	all.Add(0, ids.Buckets-1)
	gate := func(s ids.SKUID) Gate {
		return Gate{SKU: s, State: cellquotav1.GateState_GATE_STATE_OPEN, Bound: 1000}
	}
	stocks := []StockBase{{SKU: testSKU, Available: 10, Version: 5, LastNumber: 2, Gate: gate(testSKU)}}
	if scope.SKU == "" {
		stocks = append(stocks, StockBase{SKU: otherSKU, Available: 10, Version: 5, LastNumber: 2, Gate: gate(otherSKU)})
	}
	return Image{
		Scope: scope, Build: build, Shard: "1/1", Window: Window{OpenAtMS: 1, CloseAtMS: farAhead, KeepUntilMS: farAhead},
		StreamMax: 10000, Stocks: stocks, Buckets: []DomainBuckets{{Set: all}},
	}
}

func newMirror(t testing.TB, im Image) *mirror {
	t.Helper()
	s := testkit.Redis(t)
	c, reg := openClient(t, s.Addr(), Standalone)
	m := &mirror{t: t, Client: c, server: s, raw: s.Client(t), reg: reg}
	m.install(t, im)
	return m
}

// install acknowledges the server, installs im and expects its build.
func (m *mirror) install(t testing.TB, im Image) {
	t.Helper()
	ctx := testkit.Deadline(t)
	if err := m.Check(ctx); err != nil {
		t.Fatal(err)
	}
	var err error
	if im.Server, err = m.Acknowledge(ctx); err != nil {
		t.Fatal(err)
	}
	if err := m.Install(ctx, im); err != nil {
		t.Fatal(err)
	}
	m.Expect(im.Scope, im.Build)
}

// ask is a valid first attempt of a user with a nonce of its own.
func ask(user, request string) Ask {
	return Ask{
		Scope: skuScope, SKU: testSKU, User: ids.UserID(user), Request: ids.RequestID(request), Quantity: 1,
		Nonce: "n-" + user + "-" + request, PermitExpiresAtMS: farAhead,
		Price: &cellquotav1.Money{Amount: "10.00", Currency: "CNY"}, CampaignVersion: 1,
	}
}

func (m *mirror) one(ctx context.Context, a Ask) Result { return m.Admit(ctx, []Ask{a})[0] }

// want fails unless the result is of outcome o without an error.
func want(t testing.TB, r Result, o Outcome) Result {
	t.Helper()
	if r.Outcome != o || r.Err != nil {
		t.Fatalf("got %s (%v), want %s", r.Outcome, r.Err, o)
	}
	return r
}

func (m *mirror) stock(t testing.TB, scope Scope, sku ids.SKUID) int64 {
	t.Helper()
	f, err := m.Facts(testkit.Deadline(t), scope, sku)
	if err != nil {
		t.Fatal(err)
	}
	return f.Stock
}
