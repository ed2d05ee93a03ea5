package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// Spec says how one process is run. Only Name, Path and Log are required.
type Spec struct {
	// Name is unique within a supervisor.
	Name string
	// Path is the program; Args are its arguments, the program's name first.
	Path string
	Args []string
	// Env is the whole environment, as os.Environ gives it.
	Env []string
	// Dir is the working directory; empty is the supervisor's.
	Dir string
	// RunAs is another user to run as; nil is the supervisor's own.
	RunAs *syscall.Credential
	// Handles are directories that the child finds open as descriptors 3, 4, …
	Handles []string
	// Log receives standard output and error; it is appended to.
	Log string
	// Probe reports whether the process serves; nil means that it serves at
	// once. It is asked again and again, each time with a context of its own.
	Probe func(ctx context.Context) error
	// StopWith asks the process to end; 0 is SIGTERM.
	StopWith syscall.Signal
	// StopGrace is how long it may take over that before SIGKILL; 0 is 10 s.
	StopGrace time.Duration
	// Tier orders the stop: the highest tier ends first, and its processes end
	// together.
	Tier int
}

const defaultStopGrace = 10 * time.Second

func (s Spec) withDefaults() (Spec, error) {
	if s.Name == "" || s.Path == "" || s.Log == "" {
		return s, fmt.Errorf("supervise: process %q needs a name, a program and a log file", s.Name)
	}
	if len(s.Args) == 0 {
		s.Args = []string{filepath.Base(s.Path)}
	}
	if s.StopWith == 0 {
		s.StopWith = syscall.SIGTERM
	}
	if s.StopGrace == 0 {
		s.StopGrace = defaultStopGrace
	}
	return s, nil
}

// command builds the child. The caller closes what is returned beside it, after
// the start.
func (s Spec) command() (*exec.Cmd, []*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(s.Log), 0o755); err != nil { //nolint:gosec // logs hold no secrets; the files in it are 0600
		return nil, nil, err
	}
	log, err := os.OpenFile(s.Log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, nil, err
	}
	opened := []*os.File{log}
	cmd := &exec.Cmd{
		Path: s.Path, Args: s.Args, Env: s.Env, Dir: s.Dir,
		Stdout: log, Stderr: log,
		SysProcAttr: attributes(s.RunAs),
	}
	for _, dir := range s.Handles {
		f, err := os.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY, 0)
		if err != nil {
			return nil, nil, errors.Join(err, closeAll(opened))
		}
		opened = append(opened, f)
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	}
	return cmd, opened, nil
}

// attributes are those every child of ours has: it dies with its supervisor and
// does not hear the terminal's Ctrl-C.
func attributes(runAs *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, Credential: runAs}
}

func closeAll(files []*os.File) error {
	var errs []error
	for _, f := range files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
