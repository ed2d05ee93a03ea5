package proxy_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/cellquota/cellquota/edge/celltest"
	"github.com/cellquota/cellquota/edge/proxy"
	"github.com/cellquota/cellquota/edge/route"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/signed"
	"github.com/cellquota/cellquota/internal/testkit"
	"github.com/cellquota/cellquota/internal/transport"
	cq "github.com/cellquota/cellquota/proto/cellquota/v1"
)

func open(t testing.TB, edit ...func(*proxy.Settings)) *proxy.Cells {
	t.Helper()
	return openWith(t, prometheus.NewRegistry(), edit...)
}

func openWith(t testing.TB, reg *prometheus.Registry, edit ...func(*proxy.Settings)) *proxy.Cells {
	t.Helper()
	set := proxy.Settings{
		Dial: transport.DialOptions{Dev: true, Workload: "edge/e1"}, Streams: 2, BatchMax: 64, BatchWait: time.Millisecond,
		InflightMax: 4096, Timeout: 2 * time.Second,
	}
	for _, f := range edit {
		f(&set)
	}
	c := proxy.New(context.Background(), set, proxy.Deps{Clock: clock.System(), Log: slog.New(slog.DiscardHandler), Registry: reg})
	t.Cleanup(c.Close)
	return c
}

func fake(t testing.TB, id ids.CellID) *celltest.Cell {
	t.Helper()
	keys, err := signed.NewKeySet(signed.UseReceipt, map[string][]byte{"k1": []byte("sixteen bytes and more")})
	if err != nil {
		t.Fatal(err)
	}
	return celltest.Start(t, id, keys)
}

func cell(id ids.CellID, addrs ...string) *route.Cell {
	return &route.Cell{ID: id, Standing: route.Selling, Addresses: addrs}
}

func sync1(t testing.TB, c *proxy.Cells, cells ...*route.Cell) {
	t.Helper()
	c.Sync(slices.Values(cells))
	testkit.Eventually(t, 10*time.Second, func() error {
		for _, one := range cells {
			if len(one.Addresses) > 0 && !c.Open(one.ID) {
				return fmt.Errorf("no stream to %s", one.ID)
			}
		}
		return nil
	})
}

func admit(user, request string) *cq.Ask {
	return &cq.Ask{CampaignId: "c", SkuId: "s", UserId: user, Kind: &cq.Ask_Admit{Admit: &cq.AdmitAsk{RequestId: request, Quantity: 1}}}
}

// Thousands of asks at once over a stream that breaks again and again: each ends exactly once, and
// whoever repeats an unknown one under its id gets its one unit.
func TestAsksUnderBreaks(t *testing.T) {
	f, c := fake(t, "cell-1"), open(t)
	f.SetStock("c", "s", 1_000_000)
	sync1(t, c, cell("cell-1", f.Addr))
	const users = 2000
	var unknown, accepted, replayed atomic.Int64
	var all sync.WaitGroup
	stop := make(chan struct{})
	broke := make(chan struct{})
	go func() {
		defer close(broke)
		ticker := clock.System().NewTicker(5 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C():
				f.Break()
			case <-stop:
				return
			}
		}
	}()
	for i := range users {
		all.Go(func() {
			user := fmt.Sprintf("u%d", i)
			for try := 0; ; try++ {
				a, err := c.Ask(context.Background(), "cell-1", admit(user, "r"))
				switch {
				case err == nil && a.GetOutcome() == cq.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED:
					accepted.Add(1)
					return
				case err == nil && a.GetOutcome() == cq.AdmitOutcome_ADMIT_OUTCOME_REPLAYED:
					replayed.Add(1)
					return
				case err == nil:
					t.Errorf("%s: %v", user, a.GetOutcome())
					return
				case errors.Is(err, proxy.ErrUnknown):
					unknown.Add(1)
				}
				if try > 5000 {
					t.Errorf("%s: no answer after %d tries: %v", user, try, err)
					return
				}
				_ = clock.System().Sleep(context.Background(), time.Duration(1+try%20)*time.Millisecond)
			}
		})
		if i == users/2 {
			close(stop)
			<-broke
		}
	}
	all.Wait()
	if got := 1_000_000 - int64(f.Stock("c", "s")); got != users || accepted.Load()+replayed.Load() != users {
		t.Errorf("%d units for %d users: accepted %d, replayed %d", got, users, accepted.Load(), replayed.Load())
	}
	if replayed.Load() > unknown.Load() {
		t.Errorf("%d replays after %d unknown outcomes", replayed.Load(), unknown.Load())
	}
	t.Logf("accepted %d, replayed %d, unknown %d", accepted.Load(), replayed.Load(), unknown.Load())
}

// Asks that arrive together travel together.
func TestBatches(t *testing.T) {
	reg := prometheus.NewRegistry()
	f, c := fake(t, "cell-1"), openWith(t, reg, func(s *proxy.Settings) { s.Streams = 1 })
	f.SetStock("c", "s", 1000)
	sync1(t, c, cell("cell-1", f.Addr))
	var all sync.WaitGroup
	for i := range 500 {
		all.Go(func() {
			if _, err := c.Ask(context.Background(), "cell-1", admit(fmt.Sprint(i), "r")); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n, _ := f.Asked(); n != 500 {
		t.Errorf("%d asks arrived", n)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "cellquota_edge_exchange_batch_size" {
			continue
		}
		h := family.GetMetric()[0].GetHistogram()
		if h.GetSampleSum() != 500 || h.GetSampleCount() > 250 {
			t.Errorf("%v asks in %d messages", h.GetSampleSum(), h.GetSampleCount())
		}
		return
	}
	t.Error("no metric of batches")
}

// Addresses come and go without an ask lost: new asks take the new way, old ones end on the old.
func TestSync(t *testing.T) {
	first, second := fake(t, "cell-1"), fake(t, "cell-1")
	for _, f := range []*celltest.Cell{first, second} {
		f.SetStock("c", "s", 1000)
	}
	c := open(t, func(s *proxy.Settings) { s.Timeout = time.Second })
	if _, err := c.Ask(context.Background(), "cell-1", admit("u", "r")); !errors.Is(err, proxy.ErrNoCell) {
		t.Errorf("a cell nobody heard of: %v", err)
	}
	sync1(t, c, cell("cell-1", first.Addr))
	first.Silence(true)
	asked := make(chan error, 1)
	go func() {
		_, err := c.Ask(context.Background(), "cell-1", admit("u", "r"))
		asked <- err
	}()
	testkit.Eventually(t, 5*time.Second, func() error {
		if n, _ := first.Asked(); n != 1 {
			return errors.New("not asked yet")
		}
		return nil
	})
	sync1(t, c, cell("cell-1", second.Addr))
	if _, err := c.Ask(context.Background(), "cell-1", admit("v", "r")); err != nil {
		t.Errorf("by the new way: %v", err)
	}
	if n, _ := second.Asked(); n != 1 {
		t.Errorf("the new process was asked %d times", n)
	}
	if err := <-asked; !errors.Is(err, proxy.ErrUnknown) {
		t.Errorf("the silent one's ask: %v", err)
	}
	c.Sync(slices.Values([]*route.Cell{cell("cell-1")}))
	if _, err := c.Ask(context.Background(), "cell-1", admit("w", "r")); !errors.Is(err, proxy.ErrNoCell) {
		t.Errorf("a cell without addresses: %v", err)
	}
	if _, err := c.Door("cell-1"); !errors.Is(err, proxy.ErrNoCell) {
		t.Errorf("a door to nobody: %v", err)
	}
}

// Whoever gave up is forgotten: his answer, when it comes, is late and nobody's.
func TestGivenUp(t *testing.T) {
	reg := prometheus.NewRegistry()
	f, c := fake(t, "cell-1"), openWith(t, reg, func(s *proxy.Settings) { s.Timeout = 100 * time.Millisecond })
	sync1(t, c, cell("cell-1", f.Addr))
	release := make(chan struct{})
	f.Script(func(*cq.Ask) *cq.Answer {
		<-release
		return &cq.Answer{Outcome: cq.AdmitOutcome_ADMIT_OUTCOME_CLEAR}
	})
	if _, err := c.Ask(context.Background(), "cell-1", admit("u", "r")); !errors.Is(err, proxy.ErrUnknown) {
		t.Fatalf("a slow cell: %v", err)
	}
	close(release)
	testkit.Eventually(t, 5*time.Second, func() error {
		if n := counter(t, reg, "cellquota_edge_answers_late_total"); n != 1 {
			return fmt.Errorf("%v late answers", n)
		}
		return nil
	})
}

func counter(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			return family.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// A call goes to a process that answers, while there is one, and so does an ask.
func TestDeadProcess(t *testing.T) {
	dead, alive := fake(t, "cell-1"), fake(t, "cell-1")
	alive.SetStock("c", "s", 1000)
	c := open(t)
	sync1(t, c, cell("cell-1", dead.Addr, alive.Addr))
	dead.Stop()
	good := 0
	testkit.Eventually(t, 10*time.Second, func() error { // until the edge has seen it
		d, err := c.Door("cell-1")
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if _, err := d.Orders.ListOrders(ctx, &cq.ListOrdersRequest{UserId: "u"}); err != nil {
			good = 0
			return err
		}
		if _, err := c.Ask(ctx, "cell-1", admit(fmt.Sprint("u", good), "r")); err != nil {
			good = 0
			return err
		}
		if good++; good < 20 {
			return fmt.Errorf("%d good in a row", good)
		}
		return nil
	})
}

// Close ends what is under way and leaves nothing behind.
func TestClose(t *testing.T) {
	f := fake(t, "cell-1")
	before := goleak.IgnoreCurrent()
	c := open(t)
	sync1(t, c, cell("cell-1", f.Addr))
	f.Silence(true)
	asked := make(chan error, 1)
	go func() {
		_, err := c.Ask(context.Background(), "cell-1", admit("u", "r"))
		asked <- err
	}()
	testkit.Eventually(t, 5*time.Second, func() error {
		if n, _ := f.Asked(); n != 1 {
			return errors.New("not asked yet")
		}
		return nil
	})
	c.Close()
	if err := <-asked; !errors.Is(err, proxy.ErrUnknown) {
		t.Errorf("an ask under way: %v", err)
	}
	f.Stop()
	goleak.VerifyNone(t, before)
}

func BenchmarkAsk(b *testing.B) {
	f, c := fake(b, "cell-1"), open(b)
	f.Script(func(*cq.Ask) *cq.Answer {
		return &cq.Answer{Outcome: cq.AdmitOutcome_ADMIT_OUTCOME_TEMP_SOLD_OUT, StockLeft: 1}
	})
	sync1(b, c, cell("cell-1", f.Addr))
	b.SetParallelism(256)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := c.Ask(context.Background(), "cell-1", admit("u", "r")); err != nil {
				b.Error(err)
			}
		}
	})
}
