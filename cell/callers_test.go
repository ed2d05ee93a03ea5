package cell

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/signed"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// tenThousand is how many call at once where the acceptance table says 10,000.
const tenThousand = 10_000

// line is one of an edge's streams, which many callers share: asks that are there together travel in one
// message, and every caller waits for its own answer.
type line struct {
	arrivals chan *pb.Ask

	mu      sync.Mutex
	next    uint64
	waiting map[uint64]chan *pb.Answer
}

// lines opens so many streams to each process; they end with the test.
func lines(t *testing.T, each int, to ...*process) (all []*line) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	for _, p := range to {
		for range each {
			stream, err := p.client.Admissions.Exchange(ctx)
			p.w.must(err)
			l := &line{arrivals: make(chan *pb.Ask, 1000), waiting: map[uint64]chan *pb.Answer{}}
			running.Go(func() { l.send(ctx, stream) })
			running.Go(func() { l.receive(stream) })
			all = append(all, l)
		}
	}
	return all
}

func (l *line) send(ctx context.Context, stream pb.AdmissionService_ExchangeClient) {
	for {
		var asks []*pb.Ask
		select {
		case a := <-l.arrivals:
			asks = append(asks, a)
		case <-ctx.Done():
			return
		}
		for range min(len(l.arrivals), edgeBatch-1) { // whoever is there by now
			asks = append(asks, <-l.arrivals)
		}
		if stream.Send(&pb.ExchangeRequest{Asks: asks}) != nil {
			return // receive tells why
		}
	}
}

func (l *line) receive(stream pb.AdmissionService_ExchangeClient) {
	for {
		m, err := stream.Recv()
		if err != nil {
			return // callers give up with the test
		}
		l.mu.Lock()
		for _, a := range m.GetAnswers() {
			if w := l.waiting[a.GetCorrelationId()]; w != nil {
				delete(l.waiting, a.GetCorrelationId())
				w <- a
			}
		}
		l.mu.Unlock()
	}
}

// call is one caller's ask and its answer.
func (l *line) call(ctx context.Context, a *pb.Ask) (*pb.Answer, error) {
	answer := make(chan *pb.Answer, 1)
	l.mu.Lock()
	l.next++
	a.CorrelationId = l.next
	l.waiting[l.next] = answer
	l.mu.Unlock()
	select {
	case l.arrivals <- a:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case got := <-answer:
		return got, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("no answer to %s of %s: %w", a.GetAdmit().GetRequestId(), a.GetUserId(), ctx.Err())
	}
}

// patient calls until it has a word that is not "later", as a customer does who is told when to come back.
func (l *line) patient(ctx context.Context, a *pb.Ask) (*pb.Answer, error) {
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		got, err := l.call(ctx, a)
		if err != nil {
			return nil, err
		}
		switch got.GetOutcome() {
		case pb.AdmitOutcome_ADMIT_OUTCOME_QUEUE_FULL, pb.AdmitOutcome_ADMIT_OUTCOME_THROTTLED, pb.AdmitOutcome_ADMIT_OUTCOME_PAUSED, pb.AdmitOutcome_ADMIT_OUTCOME_NOT_READY:
		default:
			return got, nil
		}
		if err := clock.System().Sleep(ctx, pause); err != nil {
			return nil, err
		}
	}
}

// crowdOf are first attempts, their permits signed: caller i is named by who.
func (w *world) crowdOf(n int, who func(i int) (user, request string)) []*pb.Ask {
	w.t.Helper()
	keys, err := signed.LoadKeys(w.keys, signed.UsePermit)
	w.must(err)
	expires := clock.System().Now().Add(time.Hour)
	asks := make([]*pb.Ask, n)
	for i := range asks {
		user, request := who(i)
		permit, err := signed.Permit{Campaign: campaign, SKU: phone, User: ids.UserID(user), Expires: expires, Nonce: signed.NewNonce()}.Sign(keys, "k1")
		w.must(err)
		asks[i] = &pb.Ask{
			CampaignId: campaign, SkuId: phone, UserId: user, WaitMs: 60_000,
			Kind: &pb.Ask_Admit{Admit: &pb.AdmitAsk{RequestId: request, Quantity: 1, Permit: permit}},
		}
	}
	return asks
}

// storm has a goroutine for each ask. All begin at the same moment, spread over the lines, and each calls
// until its request has a word that ends it. again is how often each repeats itself afterwards. It gives
// the first words.
func (w *world) storm(over []*line, asks []*pb.Ask, again func(i int) int) []*pb.Answer {
	w.t.Helper()
	answers, errs := make([]*pb.Answer, len(asks)), make([]error, len(asks))
	begin := make(chan struct{})
	var all sync.WaitGroup
	for i, a := range asks {
		all.Go(func() {
			<-begin
			answers[i], errs[i] = over[i%len(over)].patient(w.ctx, a)
			for n := range again(i) {
				repeat, err := over[(i+n+1)%len(over)].patient(w.ctx, a)
				if err == nil && answers[i] != nil && repeat.GetRequest().GetReservationId() != answers[i].GetRequest().GetReservationId() {
					err = fmt.Errorf("repeated as %v, first %v", repeat, answers[i])
				}
				errs[i] = errors.Join(errs[i], err)
			}
		})
	}
	close(begin)
	all.Wait()
	w.must(errors.Join(errs...))
	return answers
}

// told counts the outcomes of answers.
func told(answers []*pb.Answer) map[pb.AdmitOutcome]int {
	out := map[pb.AdmitOutcome]int{}
	for _, a := range answers {
		out[a.GetOutcome()]++
	}
	return out
}
