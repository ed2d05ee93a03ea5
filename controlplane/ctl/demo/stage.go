package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/cellquota/cellquota/controlplane/ctl/target"
	"github.com/cellquota/cellquota/deploy/local/platform"
	"github.com/cellquota/cellquota/internal/clock"
)

// stage is the platform that the story is played on.
type stage struct {
	target.Target
	super *platform.Client
	// child is the supervisor that we started; nil on a platform that ran before.
	child *child
	dir   string
	setUp time.Duration
}

const (
	readyWithin = 3 * time.Minute
	stopWithin  = 90 * time.Second
)

// raise starts a platform of the demo's own and waits until it is ready.
func raise(ctx context.Context, clk clock.Clock, self string, s Settings) (*stage, error) {
	program, err := find(self)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "cellquota-demo-")
	if err != nil {
		return nil, fmt.Errorf("the demo's directory: %w", err)
	}
	st := &stage{dir: dir}
	data := filepath.Join(dir, "platform")
	from := clk.Now()
	st.child, err = launch(clk, program, filepath.Join(dir, "supervisor.log"), s.Keep,
		"up", "--data-dir", data, "--cells", strconv.Itoa(s.Cells), "--kafka", s.Kafka, "--restart")
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := st.awaitReady(ctx, clk, platform.EndpointsFile(data)); err != nil {
		return st, err
	}
	st.setUp = clk.Now().Sub(from)
	return st, nil
}

// onto takes a platform that runs already.
func onto(t target.Target) (*stage, error) {
	if t.DataDir == "" {
		return nil, fmt.Errorf("%s: %w", t.Name, target.ErrNotLocal)
	}
	return &stage{Target: t, super: platform.NewClient(t.DataDir)}, nil
}

func (st *stage) awaitReady(ctx context.Context, clk clock.Clock, file string) error {
	deadline := clk.Now().Add(readyWithin)
	for {
		t, err := target.Find(target.Options{EndpointsFile: file})
		switch {
		case err == nil:
			st.Target, st.super = t, platform.NewClient(t.DataDir)
			return nil
		case !errors.Is(err, platform.ErrNotRunning):
			return err
		case clk.Now().After(deadline):
			return fmt.Errorf("the platform was not ready within %s; its log is %s", readyWithin, st.child.log)
		}
		select {
		case <-st.child.ended:
			return fmt.Errorf("the platform did not start: %w; its log %s ends:\n%s", st.child.err, st.child.log, tail(st.child.log))
		default:
		}
		if err := clk.Sleep(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
}

// lower takes down what raise started. keep leaves it running; spare leaves its files.
func (st *stage) lower(keep, spare bool) error {
	if st.child == nil || keep {
		return nil
	}
	err := st.child.stop()
	if spare {
		return err
	}
	return errors.Join(err, os.RemoveAll(st.dir))
}

// find looks for cellquota-dev beside this program, then in PATH.
func find(self string) (string, error) {
	beside := filepath.Join(filepath.Dir(self), "cellquota-dev")
	if _, err := os.Stat(beside); self != "" && err == nil {
		return beside, nil
	}
	program, err := exec.LookPath("cellquota-dev")
	if err != nil {
		return "", fmt.Errorf("%w: cellquota-dev is neither beside %s nor in PATH; run make build", ErrUsage, self)
	}
	return program, nil
}

// child is the supervisor's process.
type child struct {
	clk   clock.Clock
	cmd   *exec.Cmd
	log   string
	ended chan struct{}
	err   error // once ended is closed
	done  sync.WaitGroup
}

// launch starts it in a process group of its own: Ctrl-C is ours, and we take it down in order. Unless
// it is to outlive us, the kernel ends it when we are killed.
func launch(clk clock.Clock, program, logFile string, outlive bool, args ...string) (*child, error) {
	out, err := os.OpenFile(logFile, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("supervisor's log: %w", err)
	}
	c := &child{clk: clk, cmd: exec.Command(program, args...), log: logFile, ended: make(chan struct{})}
	c.cmd.Stdout, c.cmd.Stderr = out, out
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if !outlive {
		c.cmd.SysProcAttr.Pdeathsig = syscall.SIGTERM
	}
	started := make(chan error, 1)
	c.done.Go(func() {
		runtime.LockOSThread() // the parent that Pdeathsig means is this thread
		defer close(c.ended)
		defer func() { _ = out.Close() }() // the child has its own handle
		err := c.cmd.Start()
		started <- err
		if err == nil {
			c.err = c.cmd.Wait()
		}
	})
	if err := <-started; err != nil {
		c.done.Wait()
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	return c, nil
}

// stop asks it to end, and ends it when it does not.
func (c *child) stop() error {
	_ = c.cmd.Process.Signal(syscall.SIGTERM) // ended already: Wait says so
	kill := c.clk.NewTimer(stopWithin)
	defer kill.Stop()
	select {
	case <-c.ended:
	case <-kill.C():
		_ = c.cmd.Process.Kill()
	}
	c.done.Wait()
	if c.err != nil {
		return fmt.Errorf("the platform's end: %w; its log is %s", c.err, c.log)
	}
	return nil
}

// tail is the end of a log, for an error.
func tail(file string) string {
	f, err := os.Open(file)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = f.Close() }() // only read
	if info, err := f.Stat(); err == nil && info.Size() > 2048 {
		_, _ = f.Seek(-2048, io.SeekEnd) // else from the start
	}
	text, _ := io.ReadAll(f) // what can be read
	return string(bytes.TrimSpace(text))
}
