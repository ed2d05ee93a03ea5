package testkit

import (
	"fmt"
	"syscall"
	"testing"
)

// OwnPG is a PostgreSQL server that belongs to one test, which may stop, kill,
// pause and start it. Its databases survive all of that.
type OwnPG struct {
	*PG
	paused []int
}

// OwnPostgres starts a server (about a second) with settings over the fast
// defaults: {"fsync": "on"}, {"synchronous_standby_names": "…"}. It is gone when
// the test ends.
func OwnPostgres(t testing.TB, settings map[string]string) *OwnPG {
	t.Helper()
	server, err := newPostgres(settings)
	if err != nil {
		t.Fatalf("start PostgreSQL: %v", err)
	}
	own := &OwnPG{PG: newPG(server)}
	t.Cleanup(func() {
		own.Resume(t)
		if err := server.discard(); err != nil {
			t.Errorf("end PostgreSQL: %v", err)
		}
	})
	logTailOnFailure(t, "PostgreSQL", server.logFile())
	return own
}

// PID is the postmaster's process id.
func (own *OwnPG) PID() int { return own.server.proc.pid }

// Stop shuts the server down in the fast mode: clients are cut off, open
// transactions rolled back, data is complete.
func (own *OwnPG) Stop(t testing.TB) {
	t.Helper()
	own.Resume(t)
	if err := own.server.proc.stop(syscall.SIGINT); err != nil {
		t.Fatalf("stop PostgreSQL: %v", err)
	}
}

// Kill ends every process of the server with SIGKILL, as a crash would.
func (own *OwnPG) Kill(t testing.TB) {
	t.Helper()
	proc := own.server.proc
	pids := proc.tree()
	if err := signalAll(pids, syscall.SIGKILL); err != nil {
		t.Fatalf("kill PostgreSQL: %v", err)
	}
	<-proc.done
	own.paused = nil
	Eventually(t, stopTimeout, func() error {
		for _, pid := range pids {
			if alive(pid) {
				return fmt.Errorf("process %d is still there", pid)
			}
		}
		return nil
	})
}

// Start starts the server after Stop or Kill, on the same port and data, and
// waits until it answers (after a kill: until it has recovered).
func (own *OwnPG) Start(t testing.TB) {
	t.Helper()
	if err := own.server.start(); err != nil {
		t.Fatalf("start PostgreSQL again: %v", err)
	}
}

// Pause stops every process of the server where it is, locks held, until Resume
// or the end of the test.
func (own *OwnPG) Pause(t testing.TB) {
	t.Helper()
	// The postmaster first, so that no new backend appears behind our back.
	if err := own.server.home.pause([]int{own.PID()}); err != nil {
		t.Fatalf("pause PostgreSQL: %v", err)
	}
	own.paused = own.server.proc.tree()
	if err := own.server.home.pause(own.paused); err != nil {
		t.Fatalf("pause PostgreSQL: %v", err)
	}
}

// Resume lets a paused server go on; without a pause it does nothing.
func (own *OwnPG) Resume(t testing.TB) {
	t.Helper()
	if own.paused == nil {
		return
	}
	if err := own.server.home.resume(own.paused); err != nil {
		t.Fatalf("resume PostgreSQL: %v", err)
	}
	own.paused = nil
}
