//go:build chaos

package system

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/cellquota/cellquota/internal/clock"
)

// K49: the disk of Redis, then of PostgreSQL, then of Kafka is full for 20 s each in a running sale. Each
// store of cell-1 (the broker is everybody's) lies on a small file system of its own, mounted for this
// test, which needs the right to mount.
func TestChaosOfDisks(t *testing.T) {
	dir := dataDir(t)
	disks := map[string]string{"cell-1/redis": "12m", "cell-1/postgres": "160m", "kafka": "32m"}
	for store, size := range disks {
		mountSmall(t, filepath.Join(dir, "data", store), size)
	}
	full := func(store string, settle time.Duration, h hurt) hurt {
		var empty func()
		h.name = "K49: the disk of " + store + " is full"
		h.hold, h.back = 20*time.Second, settle
		h.do = func(w *wired) { empty = fill(w.t, filepath.Join(dir, "data", store)) }
		h.end = func(*wired) { empty() }
		return h
	}
	w := startWiredIn(t, dir, 2, "--restart", "--set", "cell.payment.attempt_grace=2s",
		"--set", "cell-1/postgres.min_wal_size=32MB", "--set", "cell-1/postgres.max_wal_size=48MB")
	w.suffer("disks-full", []hurt{
		full("cell-1/redis", 20*time.Second, hurt{must: paused}),
		full("cell-1/postgres", 60*time.Second, hurt{must: paused}),
		full("kafka", 60*time.Second, hurt{told: paused, shared: true}),
	})
}

// mountSmall makes a folder a file system of its own until the test ends.
func mountSmall(t *testing.T, dir, size string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("small", dir, "tmpfs", 0, "mode=0755,size="+size); err != nil {
		t.Fatalf("mount %s (run this test as root, with CAP_SYS_ADMIN): %v", dir, err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
}

// fill writes until the file system takes nothing more, and goes on doing so: what a store gives up is taken
// too. The function it gives makes room.
func fill(t *testing.T, dir string) (empty func()) {
	t.Helper()
	name := filepath.Join(dir, "ballast")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	first := make(chan struct{})
	go func() {
		defer close(stopped)
		tick := clock.System().NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			_, err := io.Copy(f, endless{make([]byte, 4<<10)})
			if !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("the disk was not filled: %v", err)
			}
			select {
			case <-first:
			default:
				close(first)
			}
			select {
			case <-stop:
				return
			case <-tick.C():
			}
		}
	}()
	<-first
	return func() {
		close(stop)
		<-stopped
		if err := errors.Join(f.Close(), os.Remove(name)); err != nil {
			t.Error(err)
		}
	}
}

// endless reads as a piece again and again.
type endless struct{ piece []byte }

// Read implements io.Reader.
func (e endless) Read(p []byte) (int, error) { return copy(p, e.piece), nil }
