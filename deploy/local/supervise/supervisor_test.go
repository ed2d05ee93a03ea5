package supervise

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shell is a process that runs a script.
func shell(t *testing.T, name, script string) Spec {
	t.Helper()
	return Spec{
		Name: name, Path: "/bin/sh", Args: []string{"sh", "-c", script},
		Env: os.Environ(), Log: filepath.Join(t.TempDir(), name+".log"),
	}
}

// forever ends on SIGTERM.
const forever = `trap 'kill $!; exit 0' TERM; while :; do sleep 3600 & wait; done`

func supervisor(t *testing.T, clk clock.Clock, specs ...Spec) *Supervisor {
	t.Helper()
	s := New(slog.New(slog.DiscardHandler), clk)
	for _, spec := range specs {
		if err := s.Add(spec); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			t.Error(err)
		}
		for _, p := range s.List() {
			if p.PID != 0 && syscall.Kill(p.PID, 0) == nil {
				t.Errorf("%s (%d) is left after Stop", p.Name, p.PID)
			}
		}
	})
	return s
}

func begin(t *testing.T, s *Supervisor, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := s.Start(name); err != nil {
			t.Fatal(err)
		}
		if err := s.WaitReady(testkit.Deadline(t), name); err != nil {
			t.Fatal(err)
		}
	}
}

func status(s *Supervisor, name string) Status {
	for _, p := range s.List() {
		if p.Name == name {
			return p
		}
	}
	return Status{}
}

func reach(t *testing.T, s *Supervisor, name string, state State) {
	t.Helper()
	testkit.Eventually(t, 20*time.Second, func() error {
		if now := status(s, name).State; now != state {
			return errors.New(now.String())
		}
		return nil
	})
}

func TestBackOffBeforeARestart(t *testing.T) {
	clk := clock.NewManual(time.Unix(1_700_000_000, 0))
	s := supervisor(t, clk, shell(t, "a", "exit 3"))
	s.RestartWhatDies()
	if err := s.Start("a"); err != nil {
		t.Fatal(err)
	}
	reach(t, s, "a", Waiting)
	if got := status(s, "a"); got.Starts != 1 || got.Exit != "exit status 3" {
		t.Fatalf("before the back-off is over: %+v", got)
	}
	// The first wait is 100 ms, give or take half.
	clk.Advance(backOffFirst * 2)
	testkit.Eventually(t, 20*time.Second, func() error {
		if n := status(s, "a").Starts; n != 2 {
			return errors.New("not started again")
		}
		return nil
	})
}

func TestHeldDuringTheBackOffStaysDown(t *testing.T) {
	clk := clock.NewManual(time.Unix(1_700_000_000, 0))
	s := supervisor(t, clk, shell(t, "a", "exit 3"))
	s.RestartWhatDies()
	if err := s.Start("a"); err != nil {
		t.Fatal(err)
	}
	reach(t, s, "a", Waiting)
	if err := s.Hold(testkit.Deadline(t), "a", syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	clk.Advance(time.Hour)
	if got := status(s, "a"); got.State != Held || got.Starts != 1 {
		t.Errorf("held during the back-off: %+v", got)
	}
}

func TestStartWhileEndingStartsAfterwards(t *testing.T) {
	gate := filepath.Join(t.TempDir(), "gate")
	if err := syscall.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	// Told to end, it waits until somebody opens the gate.
	spec := shell(t, "a", `trap 'read -r x <`+gate+`; kill $!; exit 0' TERM; echo up; while :; do sleep 3600 & wait; done`)
	spec.Probe = says(spec.Log, "up")
	s := supervisor(t, clock.System(), spec)
	begin(t, s, "a")
	first := status(s, "a")
	if err := s.Hold(testkit.Deadline(t), "a", syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := s.Start("a"); err != nil {
		t.Fatal(err)
	}
	if got := status(s, "a"); got.State != Cycling || got.PID != first.PID {
		t.Errorf("while it ends: %+v", got)
	}
	if err := os.WriteFile(gate, []byte("go\n"), 0); err != nil {
		t.Fatal(err)
	}
	reach(t, s, "a", Ready)
	if got := status(s, "a"); got.PID == first.PID || got.Starts != 2 {
		t.Errorf("after it ended: %+v, first %+v", got, first)
	}
	if err := s.Hold(testkit.Deadline(t), "a", syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// says is a probe for a word in the log.
func says(log, want string) func(context.Context) error {
	return func(context.Context) error {
		text, err := os.ReadFile(log)
		if err == nil && !strings.Contains(string(text), want) {
			err = errors.New("not yet")
		}
		return err
	}
}

func TestTiersStopFromTheHighest(t *testing.T) {
	order := filepath.Join(t.TempDir(), "order")
	tier := func(name string, n int) Spec {
		spec := shell(t, name, `trap 'echo `+name+` >>`+order+`; kill $!; exit 0' TERM; echo up; while :; do sleep 3600 & wait; done`)
		spec.Probe, spec.Tier = says(spec.Log, "up"), n
		return spec
	}
	s := supervisor(t, clock.System(), tier("store", 0), tier("edge", 2), tier("cell", 1))
	begin(t, s, "store", "edge", "cell")
	if err := s.Stop(testkit.Deadline(t)); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(order)
	if err != nil || string(text) != "edge\ncell\nstore\n" {
		t.Errorf("stopped in the order %q (%v)", text, err)
	}
	if err := s.Start("cell"); !errors.Is(err, ErrStopping) {
		t.Errorf("start after stop: %v, want ErrStopping", err)
	}
}

func TestWhoDoesNotStopIsKilled(t *testing.T) {
	spec := shell(t, "deaf", `trap '' TERM; echo up; while :; do sleep 3600; done`)
	spec.Probe, spec.StopGrace = says(spec.Log, "up"), 100*time.Millisecond
	s := supervisor(t, clock.System(), spec)
	begin(t, s, "deaf")
	if err := s.Stop(testkit.Deadline(t)); err != nil {
		t.Fatal(err)
	}
	if got := status(s, "deaf"); got.State != Held || got.Exit != "signal: killed" {
		t.Errorf("after the stop: %+v", got)
	}
}

func TestAFrozenProcessCanBeStopped(t *testing.T) {
	spec := shell(t, "frozen", `echo up; `+forever)
	spec.Probe = says(spec.Log, "up")
	s := supervisor(t, clock.System(), spec)
	begin(t, s, "frozen")
	if err := s.Send("frozen", syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(testkit.Deadline(t)); err != nil {
		t.Fatal(err)
	}
	if got := status(s, "frozen"); got.Exit != "exit status 0" {
		t.Errorf("a frozen process did not stop in order: %+v", got)
	}
}

func TestKillTakesWhatTheProcessStarted(t *testing.T) {
	spec := shell(t, "parent", `sleep 3600 & echo "child $!"; wait`)
	spec.Probe = says(spec.Log, "child")
	s := supervisor(t, clock.System(), spec)
	begin(t, s, "parent")
	below := descendants(status(s, "parent").PID)
	if len(below) != 1 {
		t.Fatalf("descendants: %v, want the sleep", below)
	}
	if err := s.Hold(testkit.Deadline(t), "parent", syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 10*time.Second, func() error {
		if syscall.Kill(below[0], 0) == nil {
			return errors.New("its child runs on")
		}
		return nil
	})
}

func TestWhatCannotBeStarted(t *testing.T) {
	spec := shell(t, "a", "")
	spec.Path = "/nowhere/program"
	s := supervisor(t, clock.System(), spec)
	if err := s.Start("a"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("start: %v, want not found", err)
	}
	if err := s.WaitReady(testkit.Deadline(t), "a"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("wait: %v, want not found", err)
	}
	if err := s.Start("b"); !errors.Is(err, ErrUnknown) {
		t.Errorf("start of another: %v, want ErrUnknown", err)
	}
	if err := s.Add(Spec{Name: "c"}); err == nil {
		t.Error("a process without a program was taken")
	}
	if err := s.Add(spec); err == nil {
		t.Error("a second process of the same name was taken")
	}
}

func TestRunOnce(t *testing.T) {
	spec := shell(t, "once", "echo first; echo second >&2; exit 7")
	err := RunOnce(testkit.Deadline(t), spec)
	if err == nil || !strings.Contains(err.Error(), "exit status 7\n    first\n    second") {
		t.Errorf("got %v", err)
	}
	text, err := os.ReadFile(spec.Log)
	if err != nil || string(text) != "first\nsecond\n" {
		t.Errorf("log %q (%v)", text, err)
	}
	if err := RunOnce(testkit.Deadline(t), shell(t, "fine", "exit 0")); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	if err := RunOnce(ctx, shell(t, "late", "sleep 3600")); err == nil || !strings.Contains(err.Error(), "enough") {
		t.Errorf("with a context that has ended: %v", err)
	}
}
