package supervise

import (
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"syscall"
)

// thaw looks after processes that were frozen and are not our own children:
// PostgreSQL's backends. When the supervisor is killed, their parent is killed
// by the kernel, and they end as soon as they notice; frozen ones never would.
// So a small shell holds the other end of a pipe and, when that closes in
// whatever way, tells every process that was ever frozen to go on. To tell that
// to a process that runs, or to another that has the number now, does nothing.
type thaw struct {
	mu    sync.Mutex
	shell *exec.Cmd
	pipe  io.WriteCloser
}

const thawScript = `all=
while read -r pid; do all="$all $pid"; done
for pid in $all; do kill -CONT "$pid" 2>/dev/null; done
exit 0
`

// note writes pids down, before they are frozen.
func (t *thaw) note(pids []int) error {
	if len(pids) == 0 {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.shell == nil {
		if err := t.begin(); err != nil {
			return fmt.Errorf("look after frozen processes: %w", err)
		}
	}
	for _, pid := range pids {
		if _, err := fmt.Fprintln(t.pipe, pid); err != nil {
			return fmt.Errorf("look after frozen processes: %w", err)
		}
	}
	return nil
}

func (t *thaw) begin() error {
	shell := exec.Command("/bin/sh", "-c", thawScript) // ends when its input does
	shell.Dir = "/"
	shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	pipe, err := shell.StdinPipe()
	if err != nil {
		return err
	}
	if err := shell.Start(); err != nil {
		return err
	}
	t.shell, t.pipe = shell, pipe
	return nil
}

// end lets the shell do its work and waits for it.
func (t *thaw) end() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.shell == nil {
		return nil
	}
	err := errors.Join(t.pipe.Close(), t.shell.Wait())
	t.shell = nil
	return err
}
