package boot

import (
	"context"
	"fmt"
	"log/slog"

	"golang.org/x/sync/errgroup"

	"github.com/cellquota/cellquota/internal/clock"
)

// step is one thing to do, once those it comes after are done.
type step struct {
	name  string
	after []string
	run   func(context.Context) error
}

// runSteps runs every step as early as its order allows. The first failure ends
// the context of the others and is returned, with the step's name.
func runSteps(ctx context.Context, log *slog.Logger, clk clock.Clock, steps []step) error {
	done := map[string]chan struct{}{}
	for _, s := range steps {
		for _, before := range s.after {
			// Listed order is a valid order, so there is no cycle.
			if done[before] == nil {
				return fmt.Errorf("boot: step %s comes after %s, which is not listed before it", s.name, before)
			}
		}
		done[s.name] = make(chan struct{})
	}
	all, ctx := errgroup.WithContext(ctx)
	for _, s := range steps {
		all.Go(func() error {
			for _, before := range s.after {
				select {
				case <-done[before]:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			from := clk.Now()
			if err := s.run(ctx); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			log.Info("step done", "event", "boot_step", "step", s.name, "took", clk.Now().Sub(from).String())
			close(done[s.name])
			return nil
		})
	}
	return all.Wait()
}
