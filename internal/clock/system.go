package clock

import (
	"context"
	"time"
)

// System returns the machine's clock.
func System() Clock { return system{} }

type system struct{}

func (system) Now() time.Time { return time.Now() }

func (system) NewTimer(d time.Duration) Timer { return systemTimer{time.NewTimer(d)} }

func (system) NewTicker(d time.Duration) Ticker { return systemTicker{time.NewTicker(d)} }

func (s system) Sleep(ctx context.Context, d time.Duration) error { return sleep(ctx, s, d) }

type systemTimer struct{ t *time.Timer }

func (t systemTimer) C() <-chan time.Time        { return t.t.C }
func (t systemTimer) Stop() bool                 { return t.t.Stop() }
func (t systemTimer) Reset(d time.Duration) bool { return t.t.Reset(d) }

type systemTicker struct{ t *time.Ticker }

func (t systemTicker) C() <-chan time.Time { return t.t.C }
func (t systemTicker) Stop()               { t.t.Stop() }

// Offset returns a clock whose Now is base's Now shifted by d. Timers, tickers
// and sleeps last as long as base's: a wrong wall clock does not make a process
// slower or faster, it only makes it disagree with the others.
func Offset(base Clock, d time.Duration) Clock {
	if d == 0 {
		return base
	}
	return offset{Clock: base, by: d}
}

type offset struct {
	Clock
	by time.Duration
}

func (o offset) Now() time.Time { return o.Clock.Now().Add(o.by) }

// sleep is Sleep in terms of a clock's own timers.
func sleep(ctx context.Context, c Clock, d time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if d <= 0 {
		return nil
	}
	timer := c.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C():
		return nil
	}
}
