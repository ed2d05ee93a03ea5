package platform

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

// Errors of the control protocol, on both sides of it.
var (
	// ErrUnknownProcess names no process of this platform.
	ErrUnknownProcess = errors.New("unknown process")
	// ErrNotAlive means that a signal was meant for a process that is down.
	ErrNotAlive = errors.New("process is not running")
	// ErrInvalid is a request that does not say what it must.
	ErrInvalid = errors.New("invalid control request")
	// ErrStopping means that the platform is being taken down.
	ErrStopping = errors.New("the platform is stopping")
)

// States of a process.
const (
	StateDown     = "DOWN"     // never started, or ended by itself and nobody restarts it
	StateStarting = "STARTING" // it runs and was not ready yet since its start
	StateReady    = "READY"    // it runs and was ready at least once since its start
	StateWaiting  = "WAITING"  // ended by itself, started again after a back-off
	StateEnding   = "ENDING"   // told to end, not gone yet
	StateHeld     = "HELD"     // ended on purpose, stays down until it is started
	StateCycling  = "CYCLING"  // as ENDING, and started again when it is gone
)

// Process is what the supervisor knows of one of its processes.
type Process struct {
	// Name is one of etcd (etcd-N where there are three), kafka, controlplane-N, edge-N, CELL/pN, CELL/redis
	// and CELL/postgres, where CELL is a cell id such as cell-1.
	Name string `json:"name"`
	// State is one of the states above.
	State string `json:"state"`
	// PID is the process id of the last start, 0 before the first.
	PID int `json:"pid"`
	// Starts counts how often it was started.
	Starts int `json:"starts"`
	// Exit tells how it last ended; empty before that.
	Exit string `json:"exit,omitempty"`
	// Log is the file that its output goes to.
	Log string `json:"log"`
}

// numbered is what distinguishes a cell's own processes from its stores.
var numbered = regexp.MustCompile(`^p[0-9]+$`)

// Select gives the processes that name means: one by its own name, or for a
// cell id all cellquotad processes of that cell, not its stores.
func Select(names []string, name string) ([]string, error) {
	if slices.Contains(names, name) {
		return []string{name}, nil
	}
	var found []string
	for _, n := range names {
		if cell, part, ok := strings.Cut(n, "/"); ok && cell == name && numbered.MatchString(part) {
			found = append(found, n)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%w %q: this platform has %s", ErrUnknownProcess, name, strings.Join(names, ", "))
	}
	return found, nil
}

// Signal is what can be sent to a process.
type Signal string

// The signals. KILL and TERM keep the process down until it is started again;
// TERM asks it to end in its own way (PostgreSQL is not made to wait for its
// clients), KILL leaves it no choice. STOP freezes it, its children included,
// and CONT lets it go on.
const (
	KILL Signal = "KILL"
	TERM Signal = "TERM"
	STOP Signal = "STOP"
	CONT Signal = "CONT"
)

var signals = map[Signal]syscall.Signal{
	KILL: syscall.SIGKILL, TERM: syscall.SIGTERM, STOP: syscall.SIGSTOP, CONT: syscall.SIGCONT,
}

// ParseSignal takes KILL, TERM, STOP and CONT, in either case and with or
// without SIG before them; the empty string is KILL.
func ParseSignal(s string) (Signal, error) {
	if s == "" {
		return KILL, nil
	}
	sig := Signal(strings.TrimPrefix(strings.ToUpper(s), "SIG"))
	if _, ok := signals[sig]; !ok {
		return "", fmt.Errorf("%w: signal %q is not one of KILL, TERM, STOP, CONT", ErrInvalid, s)
	}
	return sig, nil
}

// Number is the signal as the kernel knows it.
func (s Signal) Number() syscall.Signal { return signals[s] }

// Ends reports whether the signal is meant to end the process.
func (s Signal) Ends() bool { return s == KILL || s == TERM }
