package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/telemetry"
	cq "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Pauses between two attempts to open a stream: doubled, each shortened by up to a half at random.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = 2 * time.Second
)

// lane is one stream to one process of a cell, opened again whenever it breaks. Its run is its one
// goroutine, with one for receiving beneath it.
type lane struct {
	cell    ids.CellID
	client  cq.AdmissionServiceClient
	queue   chan *call
	up      atomic.Bool // a stream is open
	set     Settings
	clock   clock.Clock
	log     *slog.Logger
	metrics *metrics
}

// run keeps the lane open until ctx ends.
func (l *lane) run(ctx context.Context) {
	pause := firstPause
	for ctx.Err() == nil {
		heard, err := l.cycle(ctx)
		l.refuseQueued()
		if ctx.Err() != nil {
			return
		}
		if heard {
			pause = firstPause
		}
		l.log.DebugContext(ctx, "stream to a cell ended", slog.String(telemetry.Event, "exchange_ended"),
			slog.String(telemetry.CellID, string(l.cell)), slog.Any(telemetry.Error, err))
		if l.clock.Sleep(ctx, pause/2+rand.N(pause/2)) != nil {
			return
		}
		pause = min(2*pause, lastPause)
	}
}

// cycle is the life of one stream; heard is whether the cell ever answered on it.
func (l *lane) cycle(ctx context.Context) (heard bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := l.client.Exchange(ctx)
	if err != nil {
		return false, fmt.Errorf("open: %w", err)
	}
	waiting := newTable()
	received := make(chan error, 1)
	go func() { received <- l.receive(stream, waiting) }()

	l.up.Store(true)
	l.metrics.streams.Inc()
	err = l.send(ctx, stream, waiting, received)
	l.up.Store(false)
	l.metrics.streams.Dec()

	cancel() // ends the receiver, if it has not ended already
	if cause := <-received; errors.Is(err, io.EOF) {
		err = cause // a send says only that the stream is over; the receiver knows why
	}
	if lost := waiting.fail(); lost > 0 {
		l.metrics.unknown.Add(float64(lost))
		l.log.WarnContext(ctx, "stream to a cell broke under its asks", slog.String(telemetry.Event, "exchange_broken"),
			slog.String(telemetry.CellID, string(l.cell)), slog.Int("asks", lost), slog.Any(telemetry.Error, err))
	}
	return waiting.heard, err
}

// receive hands out answers until the stream ends.
func (l *lane) receive(stream cq.AdmissionService_ExchangeClient, waiting *table) error {
	for {
		m, err := stream.Recv()
		if err != nil {
			if errors.Is(err, io.EOF) {
				return errors.New("the cell ended the stream")
			}
			return fmt.Errorf("receive: %w", err)
		}
		if late := waiting.answer(m.GetAnswers()); late > 0 {
			l.metrics.late.Add(float64(late))
		}
	}
}

// send sends batch after batch until the receiver reports the end, a send fails or ctx ends. What
// the receiver reported it puts back, so that whoever waits for the receiver finds it.
func (l *lane) send(ctx context.Context, stream cq.AdmissionService_ExchangeClient, waiting *table, received chan error) error {
	var (
		batch = make([]*call, 0, l.set.BatchMax)
		asks  = make([]*cq.Ask, 0, l.set.BatchMax)
		timer = l.clock.NewTimer(l.set.BatchWait)
	)
	defer timer.Stop()
	for {
		select {
		case first := <-l.queue:
			batch = l.fill(append(batch[:0], first), timer)
		case err := <-received:
			received <- err
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
		asks = waiting.enter(batch, asks[:0])
		clear(batch)
		if len(asks) == 0 {
			continue
		}
		l.metrics.batch.Observe(float64(len(asks)))
		if err := stream.Send(&cq.ExchangeRequest{Asks: asks}); err != nil {
			return fmt.Errorf("send: %w", err)
		}
	}
}

// fill adds to the batch what has arrived, and what arrives within BatchWait.
func (l *lane) fill(batch []*call, timer clock.Timer) []*call {
	timer.Reset(l.set.BatchWait)
	for len(batch) < l.set.BatchMax {
		select {
		case c := <-l.queue:
			batch = append(batch, c)
		case <-timer.C():
			return l.drain(batch)
		}
	}
	return batch
}

// drain adds to the batch what is there already.
func (l *lane) drain(batch []*call) []*call {
	for len(batch) < l.set.BatchMax {
		select {
		case c := <-l.queue:
			batch = append(batch, c)
		default:
			return batch
		}
	}
	return batch
}

// refuseQueued ends what was queued for a stream that is gone and was never sent.
func (l *lane) refuseQueued() {
	for {
		select {
		case c := <-l.queue:
			if c.state.CompareAndSwap(queued, abandoned) {
				c.finish(outcome{err: ErrNotSent})
			}
		default:
			return
		}
	}
}
