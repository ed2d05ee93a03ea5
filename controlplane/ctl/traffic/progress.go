package traffic

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/cellquota/cellquota/edge/load"
	"github.com/cellquota/cellquota/internal/clock"
)

const (
	barEvery  = 100 * time.Millisecond
	lineEvery = 5 * time.Second
)

// Watch shows a run's progress on w until stop is called: a bar for a terminal, else a plain line now
// and then. What is written to out meanwhile stands above the bar. stop waits until the last of it is
// written.
func Watch(ctx context.Context, clk clock.Clock, w io.Writer, terminal bool, run *load.Run, users int) (out io.Writer, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	stop = func() {
		cancel()
		done.Wait()
	}
	if !terminal {
		done.Go(func() { lines(ctx, clk, w, run, users) })
		return w, stop
	}
	p := mpb.New(mpb.WithOutput(w), mpb.WithWidth(40))
	done.Go(func() { bar(ctx, clk, p, run, users) })
	return p, stop
}

func bar(ctx context.Context, clk clock.Clock, p *mpb.Progress, run *load.Run, users int) {
	b := p.AddBar(int64(users),
		mpb.PrependDecorators(decor.CountersNoUnit("%d/%d customers", decor.WCSyncSpace)),
		mpb.AppendDecorators(decor.Any(func(decor.Statistics) string {
			s := run.Progress()
			return fmt.Sprintf(" %d ordered, %d paid, %d sold out, %d unknown", s.Ordered, s.Paid, s.SoldOut, s.Unknown)
		})))
	for clk.Sleep(ctx, barEvery) == nil {
		b.SetCurrent(run.Progress().Finished)
	}
	b.SetCurrent(run.Progress().Finished)
	b.Abort(false) // a run that was cut short has no full bar
	p.Wait()
}

func lines(ctx context.Context, clk clock.Clock, w io.Writer, run *load.Run, users int) {
	for clk.Sleep(ctx, lineEvery) == nil {
		fmt.Fprintln(w, Line(run.Progress(), users))
	}
}

// Line is where a run stands, in one line.
func Line(s load.Snapshot, users int) string {
	return fmt.Sprintf("%d of %d customers came, %d under way, %d ordered, %d paid, %d sold out, %d gave up, %d calls without an answer",
		s.Started, users, s.Active, s.Ordered, s.Paid, s.SoldOut, s.GaveUp, s.Unknown)
}
