package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cellquota/cellquota/deploy/local/platform"
	"github.com/cellquota/cellquota/internal/testkit"
)

const (
	bootWait = 90 * time.Second
	stopWait = 60 * time.Second
)

// rig is a supervisor under test, a process of its own.
type rig struct {
	t      *testing.T
	dir    string
	cmd    *exec.Cmd
	out    bytes.Buffer
	done   chan struct{}
	exit   int
	client *platform.Client
}

// start runs `cellquota-dev up` in dir.
func start(t *testing.T, dir string, args ...string) *rig {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	for _, name := range []string{"cellquotad", "cellctl"} {
		if err := os.Symlink(self, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	r := &rig{t: t, dir: dir, done: make(chan struct{}), client: platform.NewClient(dir)}
	r.cmd = exec.Command(self)
	r.cmd.Args = append([]string{"cellquota-dev", "up", "--data-dir", dir, "--bin-dir", bin}, args...)
	r.cmd.Stdout, r.cmd.Stderr = &r.out, &r.out
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = r.cmd.Wait()
		r.exit = r.cmd.ProcessState.ExitCode()
		close(r.done)
	}()
	t.Cleanup(func() {
		r.signal(syscall.SIGKILL)
		<-r.done
		if t.Failed() {
			t.Logf("the supervisor of %s said:\n%s", dir, r.out.String())
		}
	})
	return r
}

func (r *rig) signal(s syscall.Signal) { _ = r.cmd.Process.Signal(s) }

func (r *rig) ended() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// ready waits for the endpoints file and reads it.
func (r *rig) ready() platform.Endpoints {
	r.t.Helper()
	var e platform.Endpoints
	testkit.Eventually(r.t, bootWait, func() error {
		if r.ended() {
			r.t.Fatalf("the supervisor ended with %d before it was ready", r.exit)
		}
		var err error
		e, err = platform.ReadEndpoints(platform.EndpointsFile(r.dir))
		return err
	})
	return e
}

// wait waits for the supervisor's end and returns its exit code.
func (r *rig) wait() int {
	r.t.Helper()
	testkit.Eventually(r.t, stopWait, func() error {
		if !r.ended() {
			return errors.New("the supervisor runs")
		}
		return nil
	})
	return r.exit
}

// process finds one process by name.
func (r *rig) process(name string) platform.Process {
	r.t.Helper()
	list, err := r.client.Processes(testkit.Deadline(r.t))
	if err != nil {
		r.t.Fatal(err)
	}
	for _, p := range list {
		if p.Name == name {
			return p
		}
	}
	r.t.Fatalf("no process %s", name)
	return platform.Process{}
}

// reaches waits until a process is in a state.
func (r *rig) reaches(name, state string) platform.Process {
	r.t.Helper()
	var p platform.Process
	testkit.Eventually(r.t, stopWait, func() error {
		if p = r.process(name); p.State != state {
			return fmt.Errorf("%s is %s, want %s", name, p.State, state)
		}
		return nil
	})
	return p
}

// left lists the processes whose command line or environment names the data
// directory: every child of a platform has it in one of them.
func left(t *testing.T, dir string) []string {
	t.Helper()
	var found []string
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, proc := range all {
		if pid := filepath.Base(proc); pid == strconv.Itoa(os.Getpid()) {
			continue
		}
		line, err := os.ReadFile(filepath.Join(proc, "cmdline"))
		if err != nil || len(line) == 0 {
			continue
		}
		where, _ := os.Readlink(filepath.Join(proc, "cwd")) // PostgreSQL stands in its data directory
		if bytes.Contains(line, []byte(dir)) || strings.HasPrefix(where, dir) {
			found = append(found, filepath.Base(proc)+" "+string(bytes.ReplaceAll(line, []byte{0}, []byte(" "))))
		}
	}
	return found
}

// nothingLeft waits until no process of the platform exists.
func nothingLeft(t *testing.T, dir string) {
	t.Helper()
	testkit.Eventually(t, 20*time.Second, func() error {
		if found := left(t, dir); len(found) > 0 {
			return fmt.Errorf("left behind:\n%s", strings.Join(found, "\n"))
		}
		return nil
	})
}
