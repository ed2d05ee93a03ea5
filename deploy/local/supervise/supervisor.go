package supervise

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cellquota/cellquota/internal/clock"
)

// Errors of a Supervisor.
var (
	// ErrUnknown names a process that was never added.
	ErrUnknown = errors.New("unknown process")
	// ErrNotAlive is a signal for a process that is down.
	ErrNotAlive = errors.New("process is not running")
	// ErrStopping refuses a start because everything is being taken down.
	ErrStopping = errors.New("supervisor is stopping")
)

// killPatience is how long a process may take over dying of SIGKILL, which only
// a kernel in trouble needs.
const killPatience = 10 * time.Second

// Status is one process as it is now.
type Status struct {
	Name   string
	State  State
	PID    int    // of the last start; 0 before the first
	Starts int    // how often it was started
	Exit   string // how it last ended
	Log    string
}

// Supervisor owns processes. All methods are safe for concurrent use.
type Supervisor struct {
	log      *slog.Logger
	clk      clock.Clock
	restart  atomic.Bool
	onChange func()

	mu         sync.Mutex
	byName     map[string]*process
	order      []*process
	stopping   atomic.Bool
	thaw       thaw
	goroutines sync.WaitGroup
}

// New returns a supervisor with no process.
func New(log *slog.Logger, clk clock.Clock) *Supervisor {
	return &Supervisor{log: log, clk: clk, onChange: func() {}, byName: map[string]*process{}}
}

// RestartWhatDies makes processes that end by themselves start again after a
// back-off (100 ms growing to 5 s) from now on. Those that are DOWN stay down.
func (s *Supervisor) RestartWhatDies() { s.restart.Store(true) }

// OnChange sets what is called, from any goroutine and not for long, after a
// process was started anew, became ready or ended. Set it before the first
// start.
func (s *Supervisor) OnChange(fn func()) { s.onChange = fn }

// Add makes a process known; it is DOWN until Start.
func (s *Supervisor) Add(spec Spec) error {
	spec, err := spec.withDefaults()
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byName[spec.Name] != nil {
		return fmt.Errorf("supervise: a process %q exists already", spec.Name)
	}
	p := newProcess(spec, s)
	s.byName[spec.Name] = p
	s.order = append(s.order, p)
	return nil
}

// Start starts a process unless it runs, and returns when it has been started.
// One that is about to end on purpose is started again when it has. ErrUnknown,
// ErrStopping, or why it could not be started.
func (s *Supervisor) Start(name string) error {
	p, err := s.find(name)
	if err != nil {
		return err
	}
	defer s.onChange()
	p.mu.Lock()
	defer p.mu.Unlock()
	// Under the lock: Stop sets the flag first and then holds each process.
	if s.stopping.Load() {
		return fmt.Errorf("start %s: %w", name, ErrStopping)
	}
	return p.applyLocked(evStart, 0)
}

// WaitReady returns when the process is ready. The error of one that ended
// instead has the last lines of its log.
func (s *Supervisor) WaitReady(ctx context.Context, name string) error {
	p, err := s.find(name)
	if err != nil {
		return err
	}
	return p.waitReady(ctx)
}

// Hold ends a process on purpose, with SIGKILL or SIGTERM, and keeps it down
// until Start. SIGTERM stands for what the process takes as a request to end
// (Spec.StopWith). After SIGKILL Hold returns when the process has ended. One
// that is down already is kept down. ErrUnknown.
func (s *Supervisor) Hold(ctx context.Context, name string, signal syscall.Signal) error {
	p, err := s.find(name)
	if err != nil {
		return err
	}
	if signal == syscall.SIGTERM {
		return p.apply(evHold, p.spec.StopWith)
	}
	if err := p.apply(evHold, signal); err != nil {
		return err
	}
	return p.waitDown(ctx)
}

// Send passes a signal on that does not end a process: SIGSTOP, SIGCONT.
// ErrUnknown, ErrNotAlive.
func (s *Supervisor) Send(name string, signal syscall.Signal) error {
	p, err := s.find(name)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.signalLocked(signal)
}

// List tells of every process, in the order in which they were added.
func (s *Supervisor) List() []Status {
	var list []Status
	for _, p := range s.all() {
		p.mu.Lock()
		list = append(list, Status{p.spec.Name, p.state, p.pid, p.starts, p.exit, p.spec.Log})
		p.mu.Unlock()
	}
	return list
}

// Stop ends everything, tier by tier from the highest, and returns when no
// process and no goroutine is left. Each process may use its StopGrace; when
// ctx ends, whoever is left is killed. After Stop nothing can be started.
func (s *Supervisor) Stop(ctx context.Context) error {
	s.stopping.Store(true)
	tiers := map[int][]*process{}
	var numbers []int
	for _, p := range s.all() {
		if tiers[p.spec.Tier] == nil {
			numbers = append(numbers, p.spec.Tier)
		}
		tiers[p.spec.Tier] = append(tiers[p.spec.Tier], p)
	}
	slices.Sort(numbers)
	slices.Reverse(numbers)
	var errs []error
	for _, n := range numbers {
		errs = append(errs, stopTier(ctx, tiers[n]))
	}
	s.goroutines.Wait()
	return errors.Join(append(errs, s.thaw.end())...)
}

func stopTier(ctx context.Context, tier []*process) error {
	errs := make([]error, len(tier))
	var all sync.WaitGroup
	for i, p := range tier {
		all.Go(func() { errs[i] = p.stop(ctx) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// stop asks, waits for the grace, and kills.
func (p *process) stop(ctx context.Context) error {
	if err := p.apply(evHold, p.spec.StopWith); err != nil {
		return err
	}
	grace, cancel := context.WithTimeout(ctx, p.spec.StopGrace)
	defer cancel()
	if p.waitDown(grace) == nil {
		return nil
	}
	p.log.Warn("did not stop in time, killing it", "event", "process_killed", "grace", p.spec.StopGrace.String())
	if err := p.apply(evHold, syscall.SIGKILL); err != nil {
		return err
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), killPatience)
	defer cancel()
	if err := p.waitDown(last); err != nil {
		return fmt.Errorf("%s survived SIGKILL: %w", p.spec.Name, err)
	}
	return nil
}

func (s *Supervisor) all() []*process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.order)
}

func (s *Supervisor) find(name string) (*process, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.byName[name]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("%w: %s", ErrUnknown, name)
}
