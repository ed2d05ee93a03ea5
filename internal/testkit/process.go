package testkit

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const stopTimeout = 20 * time.Second

// process is a server of ours in a process of its own. It dies with us: the
// kernel sends it deathSignal when the thread that started it ends, so that
// thread is kept until the process has been waited for.
type process struct {
	pid  int
	done chan struct{} // closed when it has ended
	err  error         // how it ended; read after done
}

// startProcess starts cmd with its output appended to logFile.
func startProcess(cmd *exec.Cmd, logFile string, deathSignal syscall.Signal) (*process, error) {
	out, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer func() { _ = out.Close() }() // the child has its own descriptor
	cmd.Stdout, cmd.Stderr = out, out
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = deathSignal
	cmd.SysProcAttr.Setpgid = true // Ctrl-C reaches the test binary only
	p := &process{done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: see process
		err := cmd.Start()
		if err == nil {
			p.pid = cmd.Process.Pid
		}
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.done)
		}
	}()
	return p, <-started
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// stop sends sig and waits; after stopTimeout it kills. Its own death by a signal
// is not an error.
func (p *process) stop(sig syscall.Signal) error {
	if p == nil || p.ended() {
		return nil
	}
	_ = syscall.Kill(p.pid, sig)
	_ = syscall.Kill(p.pid, syscall.SIGCONT)
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-timer.C:
		_ = syscall.Kill(p.pid, syscall.SIGKILL)
		<-p.done
		return fmt.Errorf("process %d did not stop on %s within %s and was killed", p.pid, sig, stopTimeout)
	}
}

// tree is the process and its living descendants, parents first.
func (p *process) tree() []int {
	pids := []int{p.pid}
	for i := 0; i < len(pids); i++ {
		pids = append(pids, childrenOf(pids[i])...)
	}
	return pids
}

func childrenOf(parent int) []int {
	var children []int
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range stats {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if err != nil {
			continue
		}
		if state, ppid := statOf(pid); ppid == parent && state != "Z" {
			children = append(children, pid)
		}
	}
	return children
}

// statOf is the state letter and the parent of a process, "" and 0 when it has
// gone. The line reads: pid (name, which may hold anything) state ppid …
func statOf(pid int) (state string, parent int) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return "", 0
	}
	line := string(text)
	fields := strings.Fields(line[strings.LastIndexByte(line, ')')+1:])
	if len(fields) < 2 {
		return "", 0
	}
	parent, _ = strconv.Atoi(fields[1])
	return fields[0], parent
}

// alive reports whether pid runs. A zombie, whose parent has not waited for it,
// holds nothing any more and counts as gone.
func alive(pid int) bool {
	state, _ := statOf(pid)
	return state != "" && state != "Z"
}

// signalAll sends sig to each pid; one that has ended is no error.
func signalAll(pids []int, sig syscall.Signal) error {
	var errs []error
	for _, pid := range pids {
		if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			errs = append(errs, fmt.Errorf("send %s to %d: %w", sig, pid, err))
		}
	}
	return errors.Join(errs...)
}

// logTailOnFailure shows the end of a server's log when the test has failed.
func logTailOnFailure(t testing.TB, name, file string) {
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s's log ends:\n%s", name, tailOf(file))
		}
	})
}

func tailOf(file string) string {
	const most = 4096
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-most):])
}
