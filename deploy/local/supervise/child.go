package supervise

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
)

// started is what a child's goroutine reports once: the running child or why
// there is none.
type started struct {
	child *os.Process
	err   error
}

// runChild forks, reports, waits and returns how the child ended. It must be
// the whole life of its goroutine: the thread that forks has to live as long as
// the child, because the kernel sends the parent-death signal when that thread
// is gone. Returning while locked makes the runtime end the thread.
func (s Spec) runChild(report chan<- started) (exit string) {
	runtime.LockOSThread()
	cmd, opened, err := s.command()
	if err != nil {
		report <- started{err: fmt.Errorf("%s: %w", s.Name, err)}
		return err.Error()
	}
	err = cmd.Start()
	_ = closeAll(opened) // the child has its own; nothing of ours is lost
	if err != nil {
		report <- started{err: fmt.Errorf("%s: %w", s.Name, err)}
		return err.Error()
	}
	report <- started{child: cmd.Process}
	_ = cmd.Wait() // its error is the exit status again
	return cmd.ProcessState.String()
}

// RunOnce runs a helper program to its end under the same care as a supervised
// process, its output appended to the spec's log. The error has the last lines
// of its output.
func RunOnce(ctx context.Context, s Spec) error {
	s, err := s.withDefaults()
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // as in runChild
		done <- runToEnd(ctx, s)
	}()
	return <-done
}

func runToEnd(ctx context.Context, s Spec) error {
	built, opened, err := s.command()
	if err != nil {
		return fmt.Errorf("%s: %w", s.Name, err)
	}
	defer closeAll(opened) //nolint:errcheck // what the program wrote is already with the kernel
	var output bytes.Buffer
	cmd := exec.CommandContext(ctx, s.Path) // kills when ctx ends
	cmd.Args, cmd.Env, cmd.Dir = built.Args, built.Env, built.Dir
	cmd.ExtraFiles, cmd.SysProcAttr = built.ExtraFiles, built.SysProcAttr
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.WaitDelay = defaultStopGrace // for a child of it that keeps the pipe open
	err = cmd.Run()
	if _, logged := opened[0].Write(output.Bytes()); logged != nil && err == nil {
		err = logged
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", s.Name, context.Cause(ctx))
	}
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", s.Name, err, lastLines(output.String()))
	}
	return nil
}

// tailLines is how much of a log an error quotes.
const tailLines = 12

// lastLines gives the end of a log, indented so that it reads as a quotation.
func lastLines(text string) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if len(lines) > tailLines {
		lines = lines[len(lines)-tailLines:]
	}
	return "    " + strings.Join(lines, "\n    ")
}

// tailBytes bounds what tail reads.
const tailBytes = 8 << 10

// tail gives the last lines of a log file, or says why not.
func tail(file string) string {
	f, err := os.Open(file)
	if err != nil {
		return "    (" + err.Error() + ")"
	}
	defer f.Close() //nolint:errcheck // opened for reading only
	buf := make([]byte, tailBytes)
	info, err := f.Stat()
	if err != nil {
		return "    (" + err.Error() + ")"
	}
	n, _ := f.ReadAt(buf, max(0, info.Size()-tailBytes)) // io.EOF is the usual end
	return lastLines(string(buf[:n]))
}
