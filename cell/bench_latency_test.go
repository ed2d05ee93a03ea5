package cell

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/testkit"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// calm are the paces of a process by default; those of the tests here are hurried.
var calm = []string{"--report-interval=200ms", "--gate-interval=200ms", "--rebuild-interval=250ms", "--link-keepalive=1s", "--relay-sweep-after=2s"}

const (
	steadyRate = 1_500 // orders per second
	steadyTime = 30 * time.Second
	offerEvery = 5 * time.Millisecond
)

// BenchmarkAdmissionToCommit: how long after its admission a request's order is
// committed, by the clocks of Redis and PostgreSQL, in a whole process that is offered
// 1,500 requests a second for half a minute, whether or not it keeps up.
func BenchmarkAdmissionToCommit(b *testing.B) {
	ctx, cancel := context.WithTimeout(b.Context(), 10*time.Minute)
	b.Cleanup(cancel)
	w := newWorldOn(b, ctx, testkit.OwnPostgres(b, durable).PG, testkit.Redis(b, "--appendonly", "yes", "--appendfsync", "everysec"))
	p := w.start(calm...).ready()
	w.install(1)
	w.grant(1, plenty)
	p.stocked(plenty)
	user := 0
	for b.Loop() {
		first := user
		told := p.offer(&user, steadyRate, steadyTime)
		accepted := told[pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED]
		w.committed(first, accepted)
		b.Logf("answers: %v", told)
		var p50, p999, most float64
		w.must(w.admin.QueryRow(ctx, `WITH l AS (SELECT extract(epoch FROM pg_xact_commit_timestamp(xmin) - admitted_at)::float8 AS s FROM cellquota.inbox
			WHERE user_id >= $1)
			SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY s), percentile_disc(0.999) WITHIN GROUP (ORDER BY s), max(s) FROM l`, fmt.Sprintf("u%012d", first)).
			Scan(&p50, &p999, &most))
		b.ReportMetric(p50, "p50-s")
		b.ReportMetric(p999, "p99.9-s")
		b.ReportMetric(1, "p99.9-goal-s")
		b.ReportMetric(most, "max-s")
		b.ReportMetric(float64(accepted)/steadyTime.Seconds(), "accepted-per-s")
	}
	b.ReportMetric(0, "ns/op")
}

// committed waits until so many orders of users from first on are committed.
func (w *world) committed(first, n int) {
	w.t.Helper()
	testkit.Eventually(w.t, time.Minute, func() error {
		if have := w.count("SELECT count(*) FROM cellquota.inbox WHERE user_id >= $1", fmt.Sprintf("u%012d", first)); have < int64(n) {
			return fmt.Errorf("%d of %d admissions have their outcome", have, n)
		}
		return nil
	})
}

// offer sends first attempts of new users at a rate, for a time, whatever becomes of the
// earlier ones, and counts the answers to all of them.
func (p *process) offer(user *int, rate int, d time.Duration) map[pb.AdmitOutcome]int {
	p.w.t.Helper()
	ctx, cancel := context.WithCancel(p.w.ctx)
	defer cancel()
	var lanes []*offered
	var wait sync.WaitGroup
	for range edgeStreams {
		stream, err := p.client.Admissions.Exchange(ctx)
		p.w.must(err)
		l := &offered{stream: stream, told: map[pb.AdmitOutcome]int{}}
		lanes = append(lanes, l)
		wait.Go(l.listen)
	}
	tick := clock.System().NewTicker(offerEvery)
	defer tick.Stop()
	total := int(float64(rate) * d.Seconds())
	for sent, began := 0, clock.System().Now(); sent < total; {
		<-tick.C()
		due := min(total, int(clock.System().Now().Sub(began).Seconds()*float64(rate)))
		for part := range slices.Chunk(p.w.asksOf(user, due-sent), edgeBatch) {
			l := lanes[0]
			lanes = append(lanes[1:], l)
			l.sent += len(part)
			p.w.must(l.stream.Send(&pb.ExchangeRequest{Asks: part}))
		}
		sent = due
	}
	for _, l := range lanes {
		p.w.must(l.stream.CloseSend())
	}
	wait.Wait()
	told := map[pb.AdmitOutcome]int{}
	for _, l := range lanes {
		heard := 0
		for outcome, n := range l.told {
			told[outcome] += n
			heard += n
		}
		if heard != l.sent {
			p.w.t.Fatalf("%d answers to %d asks: %v", heard, l.sent, l.err)
		}
	}
	return told
}

// offered is one stream of asks, and what was answered.
type offered struct {
	stream pb.AdmissionService_ExchangeClient
	sent   int
	told   map[pb.AdmitOutcome]int // of the listener
	err    error                   // how the stream ended
}

// listen counts answers until the cell has ended the stream.
func (o *offered) listen() {
	for {
		m, err := o.stream.Recv()
		if err != nil {
			o.err = err
			return
		}
		for _, a := range m.GetAnswers() {
			o.told[a.GetOutcome()]++
		}
	}
}
