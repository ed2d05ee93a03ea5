package boot

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/cellquota/cellquota/deploy/local/platform"
	"github.com/cellquota/cellquota/deploy/local/supervise"
)

// controller is the supervisor as the control socket speaks of it.
type controller struct{ super *supervise.Supervisor }

func (c controller) Processes() []platform.Process {
	var list []platform.Process
	for _, s := range c.super.List() {
		list = append(list, platform.Process{
			Name: s.Name, State: s.State.String(), PID: s.PID, Starts: s.Starts, Exit: s.Exit, Log: s.Log,
		})
	}
	return list
}

func (c controller) Kill(ctx context.Context, name string, signal platform.Signal) ([]platform.Process, error) {
	return c.each(name, func(process string) error {
		if signal.Ends() {
			return c.super.Hold(ctx, process, signal.Number())
		}
		return c.super.Send(process, signal.Number())
	})
}

func (c controller) Start(_ context.Context, name string) ([]platform.Process, error) {
	return c.each(name, c.super.Start)
}

// each does the same to all that name means, at once: the processes of a cell
// die together.
func (c controller) each(name string, do func(process string) error) ([]platform.Process, error) {
	var names []string
	for _, s := range c.super.List() {
		names = append(names, s.Name)
	}
	selected, err := platform.Select(names, name)
	if err != nil {
		return nil, err
	}
	errs := make([]error, len(selected))
	var all sync.WaitGroup
	for i, process := range selected {
		all.Go(func() { errs[i] = translate(do(process)) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(c.Processes(), func(p platform.Process) bool {
		return !slices.Contains(selected, p.Name)
	}), nil
}

// translate turns the supervisor's errors into those of the protocol.
func translate(err error) error {
	switch {
	case errors.Is(err, supervise.ErrUnknown):
		return fmt.Errorf("%w: %w", platform.ErrUnknownProcess, err)
	case errors.Is(err, supervise.ErrNotAlive):
		return fmt.Errorf("%w: %w", platform.ErrNotAlive, err)
	case errors.Is(err, supervise.ErrStopping):
		return fmt.Errorf("%w: %w", platform.ErrStopping, err)
	default:
		return err
	}
}
