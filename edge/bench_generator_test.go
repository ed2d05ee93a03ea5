package edge

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/cellquota/cellquota/edge/client"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/signed"
)

// The generator of the benchmarks here: requests that were made before, over connections that are kept,
// read with as little work as can be, so that what is measured is the server.

// generatorConns is how many connections one round uses.
const generatorConns = 64

// wire is one connection of the generator.
type wire struct {
	conn net.Conn
	in   *bufio.Reader
}

func dialWire(t testing.TB, addr string, secure *tls.Config) *wire {
	t.Helper()
	conn, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	if secure != nil {
		conn = tls.Client(conn, secure)
	}
	return &wire{conn, bufio.NewReaderSize(conn, 4<<10)}
}

// send makes one call and returns its status.
func (w *wire) send(request []byte) (status int, err error) {
	if _, err := w.conn.Write(request); err != nil {
		return 0, err
	}
	length := 0
	for first := true; ; first = false {
		line, err := w.in.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		line = bytes.TrimRight(line, "\r\n")
		switch {
		case first:
			if len(line) < 12 {
				return 0, fmt.Errorf("answered %q", line)
			}
			status, err = strconv.Atoi(string(line[9:12]))
			if err != nil {
				return 0, err
			}
		case len(line) == 0:
			_, err := w.in.Discard(length)
			return status, err
		case bytes.HasPrefix(line, []byte("Content-Length: ")):
			if length, err = strconv.Atoi(string(line[16:])); err != nil {
				return 0, err
			}
		}
	}
}

// blast sends all requests, each once, as fast as answers come, and returns answers per second. Every
// answer must have the status.
func blast(b *testing.B, addr string, requests [][]byte, want int) float64 {
	b.Helper()
	var all sync.WaitGroup
	parts := make([][][]byte, generatorConns)
	for i, r := range requests {
		parts[i%generatorConns] = append(parts[i%generatorConns], r)
	}
	wires := make([]*wire, generatorConns)
	for i := range wires {
		wires[i] = dialWire(b, addr, nil)
	}
	began := clock.System().Now()
	for i, part := range parts {
		all.Go(func() {
			for _, request := range part {
				if status, err := wires[i].send(request); err != nil || status != want {
					b.Errorf("answered %d, want %d: %v", status, want, err)
					return
				}
			}
		})
	}
	all.Wait()
	took := clock.System().Now().Sub(began)
	for _, w := range wires {
		_ = w.conn.Close()
	}
	return float64(len(requests)) / took.Seconds()
}

// offered is what came of an open loop.
type offered struct {
	latency  map[int][]time.Duration // by status, sorted; from the time that the call was due
	unsent   int                     // no connection was free when the loop ended
	duration time.Duration
}

// openLoop makes calls at a rate for a time, whatever becomes of the earlier ones.
func openLoop(b *testing.B, rate float64, d time.Duration, workers int, call func(worker, n int) int) offered {
	b.Helper()
	total := int(rate * d.Seconds())
	due := make(chan int, total)
	began := clock.System().Now()
	at := func(n int) time.Time { return began.Add(time.Duration(float64(n) / rate * float64(time.Second))) }
	var mu sync.Mutex
	out := offered{latency: map[int][]time.Duration{}, duration: d}
	var all sync.WaitGroup
	for worker := range workers {
		all.Go(func() {
			for n := range due {
				status := call(worker, n)
				took := clock.System().Now().Sub(at(n))
				mu.Lock()
				out.latency[status] = append(out.latency[status], took)
				mu.Unlock()
			}
		})
	}
	tick := clock.System().NewTicker(time.Millisecond)
	for n := 0; n < total; {
		<-tick.C()
		for ; n < total && !clock.System().Now().Before(at(n)); n++ {
			due <- n
		}
	}
	tick.Stop()
	close(due)
	all.Wait()
	for _, l := range out.latency {
		slices.Sort(l)
	}
	return out
}

// percentile of what was answered with one of the statuses.
func (o *offered) percentile(p float64, statuses ...int) time.Duration {
	var all []time.Duration
	for _, s := range statuses {
		all = append(all, o.latency[s]...)
	}
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[min(int(p*float64(len(all))), len(all)-1)]
}

// within is the part of all calls that was answered with a status in the time.
func (o *offered) within(d time.Duration, status int) float64 {
	good, all := 0, o.unsent
	for s, l := range o.latency {
		all += len(l)
		if s == status {
			n, _ := slices.BinarySearch(l, d)
			good += n
		}
	}
	return float64(good) / float64(max(all, 1))
}

// attempt is a first attempt to buy as bytes on the wire; token is the whole bearer token.
func (r *rig) attempt(token, user, request string) []byte {
	r.t.Helper()
	permit, err := signed.Permit{
		Campaign: campaign, SKU: sku, User: ids.UserID(user), NotBefore: now(), Expires: now().Add(time.Hour), Nonce: signed.NewNonce(),
	}.Sign(r.keys[signed.UsePermit], "k1")
	if err != nil {
		r.t.Fatal(err)
	}
	body := ask(request, 1, permit)
	return fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: shop.example\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", askPath, token, len(body), body)
}

// users makes first attempts of so many new users, named from *next on.
func (r *rig) users(next *int, n int, sign func(user string) string) [][]byte {
	out := make([][]byte, n)
	for i := range out {
		user := fmt.Sprintf("u%012d", *next)
		*next++
		out[i] = r.attempt(sign(user), user, "r1")
	}
	return out
}

func (r *rig) hs256(user string) string {
	token, err := client.SignToken(secret, client.TokenClaims{Issuer: issuer, Audience: audience, User: user, Expires: now().Add(time.Hour)})
	if err != nil {
		r.t.Fatal(err)
	}
	return token
}

// bare is what a sold-out answer costs at least: the body is read and parsed, the same bytes are written.
func bare(b *testing.B, header http.Header, status int, answer []byte) (addr string) {
	b.Helper()
	l, err := (&net.ListenConfig{}).Listen(b.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: bareHandler(header, status, answer)}
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	b.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	return l.Addr().String()
}

func bareHandler(header http.Header, status int, answer []byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(r.Body)
		var body struct {
			RequestID string `json:"request_id"`
			Quantity  int32  `json:"quantity"`
			Permit    string `json:"permit"`
		}
		if err != nil || len(raw) > 0 && json.Unmarshal(raw, &body) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		for name, values := range header {
			w.Header()[name] = values
		}
		w.WriteHeader(status)
		_, _ = w.Write(answer)
	})
}
