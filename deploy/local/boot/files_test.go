package boot

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/cellquota/cellquota/deploy/local/platform"
	"github.com/cellquota/cellquota/deploy/local/supervise"
	"github.com/cellquota/cellquota/internal/testkit"
)

func TestTheEndpointsFileIsThereFromPublishToWithdraw(t *testing.T) {
	file := platform.EndpointsFile(t.TempDir())
	pid := 1
	p := newPublisher(file, func() platform.Endpoints { return platform.Endpoints{Kafka: platform.Kafka{PID: pid}} })
	read := func() int {
		e, err := platform.ReadEndpoints(file)
		if err != nil {
			return -1
		}
		return e.Kafka.PID
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(p.rewrite())
	if got := read(); got != -1 {
		t.Errorf("before publish the file has %d", got)
	}
	must(p.publish())
	pid = 2
	ctx, cancel := context.WithCancel(testkit.Deadline(t))
	done := make(chan error, 1)
	go func() { done <- p.run(ctx) }()
	p.note()
	p.note() // while the first may wait: never blocks
	testkit.Eventually(t, 10e9, func() error {
		if read() != 2 {
			return os.ErrNotExist
		}
		return nil
	})
	cancel()
	must(<-done)
	must(p.withdraw())
	must(p.publish()) // a start that was slower than the stop
	must(p.rewrite())
	if got := read(); got != -1 {
		t.Errorf("after withdraw the file has %d", got)
	}
}

func TestPathForAnAccountThatMayNotEnter(t *testing.T) {
	open, err := os.MkdirTemp("", "cellquota-path-") //nolint:usetesting // the parent of t.TempDir is closed to others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(open) })
	inner := filepath.Join(open, "a", "b")
	if err := os.MkdirAll(inner, 0o755); err != nil {
		t.Fatal(err)
	}
	other := &syscall.Credential{Uid: uint32(os.Getuid()) + 1, Gid: uint32(os.Getgid()) + 1}
	look := func(who *syscall.Credential) (string, []string) { return pathFor(inner, who) }

	if err := os.Chmod(open, 0o755); err != nil {
		t.Fatal(err)
	}
	if path, handles := look(other); path != inner || handles != nil {
		t.Errorf("everybody may enter: %s %v", path, handles)
	}
	if err := os.Chmod(open, 0o700); err != nil {
		t.Fatal(err)
	}
	if path, handles := look(other); path != handlePath || !slices.Equal(handles, []string{inner}) {
		t.Errorf("the other may not enter: %s %v", path, handles)
	}
	if path, handles := look(nil); path != inner || handles != nil {
		t.Errorf("we ourselves: %s %v", path, handles)
	}
	if path, _ := look(&syscall.Credential{Uid: uint32(os.Getuid()), Gid: 0}); path != inner {
		t.Errorf("the owner: %s", path)
	}
}

func TestStatesHaveTheWordsOfTheProtocol(t *testing.T) {
	for state, want := range map[supervise.State]string{
		supervise.Down: platform.StateDown, supervise.Starting: platform.StateStarting, supervise.Ready: platform.StateReady,
		supervise.Waiting: platform.StateWaiting, supervise.Ending: platform.StateEnding, supervise.Held: platform.StateHeld,
		supervise.Cycling: platform.StateCycling,
	} {
		if state.String() != want {
			t.Errorf("%s is called %s in the protocol", state, want)
		}
	}
}
