package edge

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/testkit"
	"github.com/cellquota/cellquota/internal/transport"
	cq "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Of an open loop: how many calls may be under way, what counts as answered, and how long a rate is tried.
const (
	loopWorkers  = 256
	answerWithin = 100 * time.Millisecond
	searchFor    = 2 * time.Second
	holdFor      = 10 * time.Second
)

// BenchmarkRequestLatency: p99 of a request that is accepted, at half of the highest open-loop rate at which
// 99 % are answered within 100 ms, through the edge and, at the same rate, straight from the same (fake)
// cell by gRPC.
func BenchmarkRequestLatency(b *testing.B) {
	r := start(b)
	r.level.Set(slog.LevelInfo)
	accept(r)
	next := 0
	through := func(rate float64, d time.Duration) offered {
		requests := r.users(&next, int(rate*d.Seconds()), r.hs256)
		wires := make([]*wire, loopWorkers)
		for i := range wires {
			wires[i] = dialWire(b, r.addr(), nil)
		}
		defer func() {
			for _, w := range wires {
				_ = w.conn.Close()
			}
		}()
		return openLoop(b, rate, d, loopWorkers, func(worker, n int) int {
			status, err := wires[worker].send(requests[n])
			if err != nil {
				b.Error(err)
			}
			return status
		})
	}
	highest := 0.0
	for rate := 50.0; ; rate *= 1.4 {
		o := through(rate, searchFor)
		if o.within(answerWithin, http.StatusAccepted) < 0.99 {
			break
		}
		highest = rate
	}
	if highest == 0 {
		b.Fatal("not even 50 requests a second are answered in time: the machine is busy with something else")
	}
	straight := direct(b, r)
	var with, without offered
	for b.Loop() {
		with, without = through(highest/2, holdFor), straight(highest/2, holdFor)
	}
	p99, bare := with.percentile(0.99, http.StatusAccepted), without.percentile(0.99, http.StatusAccepted)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(highest, "highest-per-s")
	b.ReportMetric(p99.Seconds()*1000, "p99-ms")
	b.ReportMetric(20, "p99-goal-ms")
	b.ReportMetric(bare.Seconds()*1000, "direct-p99-ms")
	b.ReportMetric(float64(p99)/float64(max(bare, 1)), "x-of-direct")
	b.ReportMetric(3, "x-goal")
}

// accept makes both cells take everybody.
func accept(r *rig) {
	for _, c := range r.cells {
		c.Script(func(a *cq.Ask) *cq.Answer {
			if a.GetPrecheck() != nil {
				return &cq.Answer{Outcome: cq.AdmitOutcome_ADMIT_OUTCOME_CLEAR}
			}
			return &cq.Answer{Outcome: cq.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED, Request: &cq.RequestView{
				RequestId: a.GetAdmit().GetRequestId(), CampaignId: a.GetCampaignId(), SkuId: a.GetSkuId(),
				State: cq.RequestState_REQUEST_STATE_QUEUED, Ack: cq.Ack_ACK_KAFKA, AdmittedAtMs: now().UnixMilli(), Quantity: 1,
			}}
		})
	}
}

// direct asks the first cell by gRPC, one ask in a message, over two streams as an edge has.
func direct(b *testing.B, r *rig) func(rate float64, d time.Duration) offered {
	b.Helper()
	conn, err := transport.Dial(r.cells[0].Addr, transport.DialOptions{Dev: true, Workload: "edge/bench"})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close() })
	return func(rate float64, d time.Duration) offered {
		ctx, cancel := context.WithCancel(b.Context())
		defer cancel()
		var lanes [2]*straightLane
		for i := range lanes {
			stream, err := cq.NewAdmissionServiceClient(conn).Exchange(ctx)
			if err != nil {
				b.Fatal(err)
			}
			lanes[i] = &straightLane{stream: stream, waiting: map[uint64]chan struct{}{}}
			go lanes[i].listen()
		}
		permit := r.mintedPermit("direct")
		return openLoop(b, rate, d, loopWorkers, func(worker, n int) int {
			done := lanes[worker%2].ask(uint64(n)+1, &cq.Ask{
				CorrelationId: uint64(n) + 1, CampaignId: campaign, SkuId: sku, UserId: fmt.Sprintf("direct-%012d", n), WaitMs: 1000,
				Kind: &cq.Ask_Admit{Admit: &cq.AdmitAsk{RequestId: "r1", Quantity: 1, Permit: permit}},
			})
			select {
			case <-done:
				return http.StatusAccepted
			case <-ctx.Done():
				return 0
			}
		})
	}
}

type straightLane struct {
	mu      sync.Mutex
	stream  cq.AdmissionService_ExchangeClient
	waiting map[uint64]chan struct{}
}

func (l *straightLane) ask(id uint64, ask *cq.Ask) <-chan struct{} {
	done := make(chan struct{})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting[id] = done
	_ = l.stream.Send(&cq.ExchangeRequest{Asks: []*cq.Ask{ask}}) // the listener hears that it is over
	return done
}

func (l *straightLane) listen() {
	for {
		m, err := l.stream.Recv()
		if err != nil {
			return
		}
		l.mu.Lock()
		for _, a := range m.GetAnswers() {
			close(l.waiting[a.GetCorrelationId()])
			delete(l.waiting, a.GetCorrelationId())
		}
		l.mu.Unlock()
	}
}

// Of BenchmarkOverload: what the cell takes in a second, and how often that is offered.
const (
	takesPerSecond = 100
	overload       = 20
	calmFor        = 5 * time.Second
)

// BenchmarkOverload: a cell that takes 100 requests a second, offered 20 times that for 10 s. p99 of what is
// accepted before, meanwhile and after; memory and goroutines before and after.
func BenchmarkOverload(b *testing.B) {
	r := start(b, func(c *Config) { c.SoldOut.TTL = 100 * time.Millisecond })
	r.level.Set(slog.LevelInfo)
	var mu sync.Mutex
	second, taken := int64(0), 0
	for _, c := range r.cells {
		c.Script(func(a *cq.Ask) *cq.Answer {
			mu.Lock()
			defer mu.Unlock()
			at := now().UnixMilli() / 100
			if second != at {
				second, taken = at, 0
			}
			if taken++; taken > takesPerSecond/10+1 {
				return &cq.Answer{Outcome: cq.AdmitOutcome_ADMIT_OUTCOME_QUEUE_FULL}
			}
			return &cq.Answer{Outcome: cq.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED, Request: &cq.RequestView{
				RequestId: a.GetAdmit().GetRequestId(), CampaignId: campaign, SkuId: sku, State: cq.RequestState_REQUEST_STATE_QUEUED,
			}}
		})
	}
	next := 0
	offer := func(rate float64, d time.Duration) offered {
		requests := r.users(&next, int(rate*d.Seconds()), r.hs256)
		wires := make([]*wire, loopWorkers)
		for i := range wires {
			wires[i] = dialWire(b, r.addr(), nil)
		}
		o := openLoop(b, rate, d, loopWorkers, func(worker, n int) int {
			status, err := wires[worker].send(requests[n])
			if err != nil {
				b.Error(err)
			}
			return status
		})
		for _, w := range wires {
			_ = w.conn.Close()
		}
		for status := range o.latency {
			if status != http.StatusAccepted && status != http.StatusTooManyRequests {
				b.Errorf("%d answers of status %d", len(o.latency[status]), status)
			}
		}
		return o
	}
	var heap, goroutines [2]float64
	var p99 [3]float64
	for b.Loop() {
		o := offer(takesPerSecond/2, calmFor)
		p99[0] = o.percentile(0.99, http.StatusAccepted).Seconds() * 1000
		heap[0], goroutines[0] = r.rest()
		o = offer(takesPerSecond*overload, holdFor)
		p99[1] = o.percentile(0.99, http.StatusAccepted).Seconds() * 1000
		b.ReportMetric(o.percentile(0.99, http.StatusTooManyRequests).Seconds()*1000, "p99-refused-ms")
		b.ReportMetric(float64(len(o.latency[http.StatusAccepted]))/holdFor.Seconds(), "accepted-per-s")
		o = offer(takesPerSecond/2, calmFor)
		p99[2] = o.percentile(0.99, http.StatusAccepted).Seconds() * 1000
		heap[1], goroutines[1] = r.rest()
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(p99[0], "p99-before-ms")
	b.ReportMetric(p99[1], "p99-under-ms")
	b.ReportMetric(p99[2], "p99-after-ms")
	b.ReportMetric(heap[0], "MiB-before")
	b.ReportMetric(heap[1], "MiB-after")
	b.ReportMetric(goroutines[0], "goroutines-before")
	b.ReportMetric(goroutines[1], "goroutines-after")
}

// rest is the heap in MiB and the goroutines once connections that were closed are gone.
func (r *rig) rest() (heap, goroutines float64) {
	last := -1
	testkit.Eventually(r.t, 10*time.Second, func() error {
		n := runtime.NumGoroutine()
		if n != last {
			last = n
			testkit.Hold(r.t, 50*time.Millisecond, "connections end")
			return fmt.Errorf("%d goroutines", n)
		}
		return nil
	})
	return mib(), float64(runtime.NumGoroutine())
}

func mib() float64 {
	runtime.GC()
	runtime.GC() // what had a finalizer
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc+m.StackInuse) / (1 << 20)
}

// idleConns is how many connections BenchmarkIdle keeps open.
const idleConns = 2_000

// BenchmarkIdle: memory of one connection that made a call and keeps quiet, beside a bare net/http server's
// in the same run: plain, by TLS, and one HTTP/2 connection. The client's end is in both.
func BenchmarkIdle(b *testing.B) {
	for _, kind := range []string{"plain", "tls", "http2"} {
		b.Run(kind, func(b *testing.B) {
			files := testkit.NewAuthority(b).Issue(b.TempDir())
			r := start(b)
			edge := *r
			secure := clientTLS(b, files.CA, kind == "http2")
			edge.run(func(c *Config) {
				if kind != "plain" {
					c.HTTP.CertFile, c.HTTP.KeyFile = files.Cert, files.Key
				}
			})
			edge.level.Set(slog.LevelInfo)
			own := idleServer(b, files, kind)
			if kind == "plain" {
				secure = nil
			}
			var ours, theirs float64
			for b.Loop() {
				theirs = idle(b, own, secure, kind == "http2")
				ours = idle(b, edge.addr(), secure, kind == "http2")
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(ours, "B/conn")
			b.ReportMetric(theirs, "net-http-B/conn")
			b.ReportMetric(ours/theirs, "x-of-net-http")
			b.ReportMetric(1.5, "x-goal")
		})
	}
}

func clientTLS(b *testing.B, ca string, h2 bool) *tls.Config {
	b.Helper()
	pem, err := os.ReadFile(ca)
	if err != nil {
		b.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	c := &tls.Config{RootCAs: pool, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	if h2 {
		c.NextProtos = []string{"h2"}
	}
	return c
}

func idleServer(b *testing.B, files testkit.PEMFiles, kind string) (addr string) {
	b.Helper()
	l, err := (&net.ListenConfig{}).Listen(b.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: bareHandler(http.Header{}, http.StatusOK, []byte("{}"))}
	done := make(chan error, 1)
	go func() {
		if kind == "plain" {
			done <- server.Serve(l)
			return
		}
		done <- server.ServeTLS(l, files.Cert, files.Key)
	}()
	b.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	return l.Addr().String()
}

// idle opens connections, makes one call on each, and returns the bytes that each of them keeps.
func idle(b *testing.B, addr string, secure *tls.Config, h2 bool) float64 {
	b.Helper()
	before := mib()
	call := fmt.Appendf(nil, "GET /v1/campaigns/%s HTTP/1.1\r\nHost: x\r\n\r\n", campaign)
	conns := make([]net.Conn, idleConns)
	for i := range conns {
		w := dialWire(b, addr, secure)
		conns[i] = w.conn
		if h2 {
			preface(b, w.conn)
			continue
		}
		if status, err := w.send(call); err != nil || status != http.StatusOK {
			b.Fatal(status, err)
		}
	}
	after := mib()
	for _, c := range conns {
		_ = c.Close()
	}
	return (after - before) * (1 << 20) / idleConns
}

// preface opens an HTTP/2 connection and waits for the server's settings.
func preface(b *testing.B, conn net.Conn) {
	b.Helper()
	const settings = "\x00\x00\x00\x04\x00\x00\x00\x00\x00" // an empty frame of them
	if _, err := conn.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + settings)); err != nil {
		b.Fatal(err)
	}
	if err := conn.SetReadDeadline(clock.System().Now().Add(10 * time.Second)); err != nil {
		b.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, len(settings))); err != nil { // its head
		b.Fatal(err)
	}
}
