package boot

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cellquota/cellquota/deploy/local/layout"
	"github.com/cellquota/cellquota/deploy/local/platform"
	"github.com/cellquota/cellquota/deploy/local/ports"
	"github.com/cellquota/cellquota/deploy/local/supervise"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/lifecycle"
)

const (
	// readyTimeout bounds the whole start. Usually it takes seconds.
	readyTimeout = 2 * time.Minute
	// stopGrace bounds the whole stop: four tiers, each within its own.
	stopGrace = 80 * time.Second
	// serverGrace is a little more than cellquotad's own shutdown_grace.
	serverGrace = 12 * time.Second
	// headerTimeout bounds how long a caller of the control socket may dawdle.
	headerTimeout = 5 * time.Second
)

// Tiers of the stop: what is asked ends after those who ask.
const (
	tierStores = iota
	tierControlPlanes
	tierCells
	tierEdges
)

// boot is one platform from start to stop.
type boot struct {
	log      *slog.Logger
	clk      clock.Clock
	plan     layout.Plan
	secrets  layout.Secrets
	programs layout.Programs
	account  *syscall.Credential // of PostgreSQL
	tls      *tls.Config         // of probes; nil: plain text
	env      []string            // of every child
	super    *supervise.Supervisor
	out      *publisher
}

// Run brings a platform up, says so on out, keeps it until ctx ends, and takes
// it down. It returns when no process is left: nil after an orderly stop, else
// what went wrong.
func Run(ctx context.Context, log *slog.Logger, clk clock.Clock, o layout.Options, programs layout.Programs, out io.Writer) (err error) {
	from := clk.Now()
	if o, err = o.Absolute(); err != nil {
		return err
	}
	if err := o.Check(); err != nil {
		return err
	}
	who, err := account()
	if err != nil {
		return err
	}
	unlock, err := lockDataDir(o.DataDir)
	if err != nil {
		return err
	}
	defer unlock()
	claim, err := ports.Claim(o.DataDir, layout.PortNames(o))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, claim.Release()) }()

	b := &boot{log: log, clk: clk, programs: programs, account: who, env: childEnv()}
	if err := b.prepare(o, claim); err != nil {
		return err
	}
	group := lifecycle.New(ctx, log)
	if err := b.handTo(group); err != nil {
		return err
	}
	group.Go("boot", func(context.Context) error {
		err := b.bringUp(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // we were told to stop meanwhile, and a step said so
		}
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "ready in %.1f s: %s\n", clk.Now().Sub(from).Seconds(), platform.EndpointsFile(o.DataDir))
		return nil
	})
	return group.Wait(stopGrace)
}

// prepare makes the plan and writes its files.
func (b *boot) prepare(o layout.Options, claim *ports.Ports) error {
	var err error
	if b.plan, err = layout.New(o, claim.Addr); err != nil {
		return err
	}
	if b.secrets, err = b.plan.MakeSecrets(); err != nil {
		return err
	}
	if err := b.plan.WriteFiles(b.secrets); err != nil {
		return err
	}
	if err := b.plan.MakeCertificates(b.clk.Now()); err != nil {
		return err
	}
	if b.tls, err = b.plan.ClientTLS(); err != nil {
		return err
	}
	b.super = supervise.New(b.log, b.clk)
	b.out = newPublisher(platform.EndpointsFile(o.DataDir), b.endpoints)
	if err := removeIfThere(b.out.file); err != nil { // a killed supervisor's
		return err
	}
	b.super.OnChange(b.out.note)
	return b.addProcesses()
}

// handTo gives the supervisor, the endpoints file and the control socket to the
// group. Hooks run last first: the file goes, then the socket, then the
// processes.
func (b *boot) handTo(group *lifecycle.Group) error {
	control, err := platform.Listen(b.plan.Options.DataDir)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: platform.Handler(controller{b.super}), ReadHeaderTimeout: headerTimeout}
	group.OnStop("processes", b.super.Stop)
	group.OnStop("control socket", func(context.Context) error { return server.Close() })
	group.OnStop("endpoints file", func(context.Context) error { return b.out.withdraw() })
	group.Go("control socket", func(context.Context) error {
		if err := server.Serve(control); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	group.Go("endpoints file", b.out.run)
	return nil
}

// bringUp runs every step and publishes the result.
func (b *boot) bringUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("not ready within %s", readyTimeout))
	defer cancel()
	early := b.endpoints()
	if err := early.Write(b.plan.ProvisionEndpoints()); err != nil {
		return err
	}
	err := runSteps(ctx, b.log, b.clk, b.steps())
	if err := errors.Join(err, os.Remove(b.plan.ProvisionEndpoints())); err != nil {
		return err
	}
	if b.plan.Options.Restart {
		b.super.RestartWhatDies()
	}
	return b.out.publish()
}

// lockDataDir makes the data directory and keeps a second supervisor out. The
// kernel gives the lock back however we end.
func lockDataDir(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // what is secret below it has modes of its own
		return nil, fmt.Errorf("--data-dir: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("--data-dir: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("%w: another platform runs in --data-dir %s (%w)", layout.ErrOption, dir, err)
	}
	return func() { _ = f.Close() }, nil
}

// childEnv is our environment less what PostgreSQL's clients would read from
// it: a PGSSLMODE of the user's shell has no say here.
func childEnv() []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "PG") })
	return slices.Clip(env) // so that two who append to it do not share
}
