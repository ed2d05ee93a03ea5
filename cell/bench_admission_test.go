package cell

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/signed"
	"github.com/cellquota/cellquota/internal/testkit"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// What an edge does by default (edge.streams, edge.batch_max), and the pipeline that
// redis-benchmark is given.
const (
	edgeStreams   = 2
	edgeBatch     = 256
	inFlight      = 4 // messages of a stream that wait for answers
	pipelineDepth = 16
	roundAsks     = 20_000 // of each side, in each pair
)

// BenchmarkAdmission: admissions per second through the gRPC API of one process that
// admits one SKU, its log acknowledged, against the same function of the library
// called by redis-benchmark on the same server.
func BenchmarkAdmission(b *testing.B) {
	w, p := admitting(b)
	reference := w.referenceOf(p, 1_000_000_000)
	user := 0
	testkit.Against(b, "redis-benchmark", 0.7, func(int) float64 {
		asks := w.asksOf(&user, roundAsks)
		return p.pour(asks, pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED)
	}, func(int) float64 {
		before := reference.admitted()
		rate := reference.run(roundAsks)
		if n := reference.admitted() - before; n < roundAsks-roundAsks/1000 { // its random users may meet
			b.Fatalf("redis-benchmark admitted %d of %d", n, roundAsks)
		}
		return rate
	})
}

// BenchmarkSoldOut: the same where the script finds no stock.
func BenchmarkSoldOut(b *testing.B) {
	w, p := admitting(b)
	reference := w.referenceOf(p, 0)
	w.must(w.redis.Client(b).Set(w.ctx, p.mirrorPrefix()+"1.1:stock:"+phone, 0, 0).Err())
	user := 0
	testkit.Against(b, "redis-benchmark", 0.6, func(int) float64 {
		asks := w.asksOf(&user, roundAsks)
		return p.pour(asks, pb.AdmitOutcome_ADMIT_OUTCOME_TEMP_SOLD_OUT)
	}, func(int) float64 {
		return reference.run(2 * roundAsks)
	})
}

// admitting is a world with one process that only admits, and a mirror that never
// runs out: what orders cost is measured by itself. Its gate is as wide as it can be.
func admitting(b *testing.B) (*world, *process) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), 10*time.Minute)
	b.Cleanup(cancel)
	w := newWorldOn(b, ctx, testkit.Postgres(b), testkit.Redis(b))
	all := w.start().ready() // the first build's barrier wants somebody who consumes
	w.install(1)
	w.grant(1, 1_000_000_000)
	all.stocked(1_000_000_000)
	all.end()
	p := w.start(slices.Concat(calm, []string{
		"--roles=admission", "--gate-min-rate=1e8", "--gate-capacity=1000000000", "--gate-pause-after=1h",
		"--admission-stream-max=100000000", "--redis-timeout=10s", "--admission-timeout=1m", "--admission-ack-wait=1m",
	})...).ready()
	testkit.Eventually(b, patience, func() error { // the gate is this process's, not its predecessor's
		g, err := p.client.Facts.GetGate(w.ctx, &pb.GetGateRequest{})
		if err != nil {
			return err
		}
		for _, one := range g.GetGates() {
			if one.GetSkuId() == phone && (one.GetState() != pb.GateState_GATE_STATE_OPEN || one.GetBound() < 100_000_000) {
				return fmt.Errorf("gate %v", one)
			}
		}
		return nil
	})
	return w, p
}

// asksOf makes first attempts of users that come one after the other from *from on,
// their permits signed.
func (w *world) asksOf(from *int, n int) []*pb.Ask {
	w.t.Helper()
	first := *from
	*from += n
	asks := w.crowdOf(n, func(i int) (string, string) { return fmt.Sprintf("u%012d", first+i), fmt.Sprintf("r%012d", i) })
	for i, a := range asks {
		a.CorrelationId = uint64(first+i) + 1
	}
	return asks
}

// pour sends the asks as an edge does, over a few streams in batches, waits for every
// answer, which must be want, and returns answers per second.
func (p *process) pour(asks []*pb.Ask, want pb.AdmitOutcome) float64 {
	p.w.t.Helper()
	ctx, cancel := context.WithCancel(p.w.ctx)
	defer cancel()
	shares := slices.Collect(slices.Chunk(asks, (len(asks)+edgeStreams-1)/edgeStreams))
	done := make(chan error, len(shares))
	redisWorked, worked, began := p.w.redis.CPU(p.w.t), testkit.OwnCPU(p.w.t), clock.System().Now()
	for _, share := range shares {
		go func() { done <- p.stream(ctx, share, want) }()
	}
	for range shares {
		p.w.must(<-done)
	}
	took := clock.System().Now().Sub(began)
	each := func(d time.Duration) float64 { return d.Seconds() / float64(len(asks)) * 1e6 }
	p.w.t.Logf("processor for one ask: %.1f µs here, %.1f µs in Redis", each(testkit.OwnCPU(p.w.t)-worked), each(p.w.redis.CPU(p.w.t)-redisWorked))
	return float64(len(asks)) / took.Seconds()
}

// stream sends one stream's share, with so many messages under way, and counts its answers.
func (p *process) stream(ctx context.Context, asks []*pb.Ask, want pb.AdmitOutcome) error {
	stream, err := p.client.Admissions.Exchange(ctx)
	if err != nil {
		return err
	}
	places := make(chan struct{}, inFlight*edgeBatch)
	sent := make(chan error, 1)
	go func() {
		for part := range slices.Chunk(asks, edgeBatch) {
			for range part {
				places <- struct{}{}
			}
			if err := stream.Send(&pb.ExchangeRequest{Asks: part}); err != nil {
				sent <- err
				return
			}
		}
		sent <- stream.CloseSend()
	}()
	for left := len(asks); left > 0; {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		for _, a := range m.GetAnswers() {
			if a.GetOutcome() != want {
				return fmt.Errorf("answer %v, want %s", a, want)
			}
			<-places
			left--
		}
	}
	return <-sent
}

// mirrorPrefix is what the keys of the phone's mirror begin with.
func (p *process) mirrorPrefix() string { return "cq:{" + campaign + ":" + phone + "}:" }

// reference is a copy of the process's mirror under another tag, and the call of the
// library that the process makes of an ask, made of it: with another user, request,
// reservation and nonce in each call.
type reference struct {
	w       *world
	command []string
	stats   string // its counters
	runs    int
}

func (w *world) referenceOf(p *process, stock int64) *reference {
	w.t.Helper()
	const user, request = "u999999999999", "r999999999999"
	nonce := ""
	call := w.redis.Monitor(w.t, "fcall", func() {
		ask := w.ask(user, request, func(a *pb.Ask) {
			a.GetAdmit().Permit = w.permit(user, func(s *signed.Permit) { nonce, s.Expires = s.Nonce, clock.System().Now().Add(time.Hour) })
		})
		want(w.t, p.exchange(ask)[0], pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED)
	})
	live, copied := p.mirrorPrefix(), "cq:{reference}:"
	tag := strings.NewReplacer(live, copied)
	r := w.redis.Client(w.t)
	for _, name := range []string{"meta", "1.1:marks", "1.1:applied", "1.1:buckets:"} {
		w.must(r.Copy(w.ctx, live+name, copied+name, 0, false).Err())
	}
	w.must(r.HDel(w.ctx, copied+"1.1:marks", user).Err())
	w.must(r.HSet(w.ctx, copied+"meta", "gate:"+phone, int(pb.GateState_GATE_STATE_OPEN), "bound:"+phone, 1_000_000_000, "stream_max", 0).Err())
	w.must(r.Set(w.ctx, copied+"1.1:stock:"+phone, stock, 0).Err())
	// A letter of each run's own (run): redis-benchmark's random numbers begin at time XOR pid, which two
	// runs may share, and then everything they ask is a repeat.
	vary := strings.NewReplacer(user, runsOwn+"__rand_int__", request, runsOwn+"__rand_int__", nonce, nonce[:13]+runsOwn+"__rand_int__")
	reservation := regexp.MustCompile(`^cell-1\.r[a-z2-7]{26}$`)
	for i, arg := range call {
		call[i] = vary.Replace(tag.Replace(arg))
		if reservation.MatchString(arg) {
			call[i] = arg[:len(arg)-13] + runsOwn + "__rand_int__"
		}
	}
	return &reference{w: w, command: call, stats: copied + "1.1:stats:" + phone}
}

// runsOwn stands for the letter of a run.
const runsOwn = "\x00"

// run lets redis-benchmark make the call so many times.
func (r *reference) run(calls int) float64 {
	r.w.t.Helper()
	command := slices.Clone(r.command)
	for i, arg := range command {
		command[i] = strings.ReplaceAll(arg, runsOwn+"__rand_int__", string(rune('a'+r.runs%26))+"__rand_int__")
	}
	r.runs++
	before := r.w.redis.CPU(r.w.t)
	rate := r.w.redis.Benchmark(r.w.t, calls, pipelineDepth, command...)
	r.w.t.Logf("processor for one call: %.1f µs in Redis", (r.w.redis.CPU(r.w.t)-before).Seconds()/float64(calls)*1e6)
	return rate
}

// admitted counts what the library admitted into the copy.
func (r *reference) admitted() int {
	r.w.t.Helper()
	n, err := r.w.redis.Client(r.w.t).HGet(r.w.ctx, r.stats, "admitted").Int()
	if !errors.Is(err, redis.Nil) {
		r.w.must(err)
	}
	return n
}
