package supervise

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// signalLocked sends signal to the present child. STOP, CONT and KILL mean the
// child with everything it started: PostgreSQL would otherwise go on serving
// from its backends while its first process stands still, and keep the data
// directory busy after that one was killed. Other signals mean the child alone;
// it is told to go on as well, so that a frozen one can hear them.
func (p *process) signalLocked(signal syscall.Signal) error {
	if !p.state.Alive() {
		return fmt.Errorf("%s: %w", p.spec.Name, ErrNotAlive)
	}
	if p.run.child == nil {
		return nil // it could not be started; its end is on the way
	}
	child := p.run.child
	var err error
	switch signal {
	case syscall.SIGKILL, syscall.SIGSTOP:
		err = p.signalTree(child, signal)
	case syscall.SIGCONT:
		signalAll(descendants(child.Pid), signal)
		err = child.Signal(signal)
	default:
		err = child.Signal(signal)
		signalAll(descendants(child.Pid), syscall.SIGCONT)
		err = errors.Join(err, child.Signal(syscall.SIGCONT))
	}
	if errors.Is(err, os.ErrProcessDone) {
		return nil // it ended meanwhile, which is what evDied will say
	}
	return err
}

// signalTree freezes or kills the child with its descendants. The child stands
// still first, so that no descendant comes after the list was made.
func (p *process) signalTree(child *os.Process, signal syscall.Signal) error {
	if err := child.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	below := descendants(child.Pid)
	if signal == syscall.SIGSTOP {
		if err := p.owner.thaw.note(below); err != nil {
			return err
		}
	}
	signalAll(below, signal)
	if signal == syscall.SIGKILL {
		return child.Signal(signal)
	}
	return nil
}

// signalAll is best effort: a descendant that is gone needs no signal.
func signalAll(pids []int, signal syscall.Signal) {
	for _, pid := range pids {
		_ = syscall.Kill(pid, signal)
	}
}

// descendants lists the processes that pid started, and those they started, as
// /proc tells it now.
func descendants(pid int) []int {
	children := map[int][]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is well formed
	for _, stat := range stats {
		child, parent, ok := parentOf(stat)
		if ok {
			children[parent] = append(children[parent], child)
		}
	}
	var found []int
	for queue := []int{pid}; len(queue) > 0; queue = queue[1:] {
		found = append(found, children[queue[0]]...)
		queue = append(queue, children[queue[0]]...)
	}
	return found
}

// parentOf reads "PID (NAME) STATE PPID …", where NAME may hold anything.
func parentOf(stat string) (pid, parent int, ok bool) {
	text, err := os.ReadFile(stat)
	if err != nil {
		return 0, 0, false
	}
	head, rest, found := strings.Cut(string(text), " ")
	end := strings.LastIndex(rest, ") ")
	if !found || end < 0 {
		return 0, 0, false
	}
	fields := strings.Fields(rest[end+2:])
	if len(fields) < 2 {
		return 0, 0, false
	}
	pid, err = strconv.Atoi(head)
	parent, err2 := strconv.Atoi(fields[1])
	return pid, parent, errors.Join(err, err2) == nil
}
