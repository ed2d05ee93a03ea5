package edge

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cellquota/cellquota/edge/client"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/testkit"
)

// An edge that is stopped under an open-loop load drops nobody's call: each is answered, or never left its
// client because nobody listens any more.
func TestDrainUnderLoad(t *testing.T) {
	var answered, refused, dropped atomic.Int64
	var last atomic.Value
	var all sync.WaitGroup
	stopped := make(chan struct{})
	t.Run("edge", func(t *testing.T) {
		r := start(t, func(c *Config) { c.HTTP.DrainDelay = 400 * time.Millisecond })
		own, err := client.New(client.Config{BaseURLs: []string{r.url}})
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			tick := clock.System().NewTicker(2 * time.Millisecond)
			defer tick.Stop()
			for after := false; !after || refused.Load() == 0; {
				select {
				case <-stopped:
					after = true
				case <-tick.C():
				}
				all.Go(func() {
					_, a, err := own.Campaign(context.Background(), campaign)
					switch {
					case err == nil && a.Status == http.StatusOK:
						answered.Add(1)
					case errors.Is(err, client.ErrNotSent):
						refused.Add(1)
					default:
						dropped.Add(1)
						last.Store(fmt.Sprint(a.Status, err))
					}
				})
			}
			own.Close()
		})
		testkit.Eventually(t, 20*time.Second, func() error {
			if n := answered.Load(); n < 200 {
				return fmt.Errorf("%d answers", n)
			}
			return nil
		})
	}) // its end stops the edge
	close(stopped)
	all.Wait()
	if dropped.Load() > 0 || refused.Load() == 0 {
		t.Errorf("%d calls were dropped (%v), %d answered, %d refused", dropped.Load(), last.Load(), answered.Load(), refused.Load())
	}
}

// One HTTP/2 connection runs only so many calls at once; others wait for their turn.
func TestHTTP2Streams(t *testing.T) {
	var mu sync.Mutex
	running, most, all := map[string]int{}, 0, 0 // by connection
	held := make(chan struct{})
	addr, pool := serveTLSOf(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		running[r.RemoteAddr]++
		most = max(most, running[r.RemoteAddr])
		all++
		mu.Unlock()
		<-held
		mu.Lock()
		running[r.RemoteAddr]--
		mu.Unlock()
	}), 5)
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true}}
	defer c.CloseIdleConnections()
	var calls sync.WaitGroup
	for range 20 {
		calls.Go(func() {
			req, err := http.NewRequestWithContext(testkit.Deadline(t), http.MethodGet, "https://"+addr+"/", nil)
			if err != nil {
				t.Error(err)
				return
			}
			res, err := c.Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			if res.ProtoMajor != 2 {
				t.Errorf("spoke HTTP/%d", res.ProtoMajor)
			}
			_ = res.Body.Close()
		})
	}
	testkit.Eventually(t, 10*time.Second, func() error {
		mu.Lock()
		defer mu.Unlock()
		if all < 5 {
			return fmt.Errorf("%d calls run", all)
		}
		return nil
	})
	close(held)
	calls.Wait()
	if most != 5 || all != 20 {
		t.Errorf("of %d calls %d ran at once on one connection", all, most)
	}
}
