package boot

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

const (
	// vacateTimeout bounds the wait for a killed server's processes to leave.
	vacateTimeout = 20 * time.Second
	vacateEvery   = 20 * time.Millisecond
)

// vacate waits until nobody works in a data directory any more, and then takes
// away the lock file that a killed server left: its process id may be a zombie
// that nobody reaps, or somebody else's by now, and the next server would refuse
// to start. Our lock on the platform's directory keeps other supervisors out.
func (b *boot) vacate(ctx context.Context, data string) error {
	ctx, cancel := context.WithTimeout(ctx, vacateTimeout)
	defer cancel()
	tick := b.clk.NewTicker(vacateEvery)
	defer tick.Stop()
	for {
		there, err := workingIn(data)
		if err != nil {
			return err
		}
		if len(there) == 0 {
			return removeIfThere(filepath.Join(data, "postmaster.pid"))
		}
		select {
		case <-tick.C():
		case <-ctx.Done():
			return fmt.Errorf("processes %v of an earlier start still work in %s: %w", there, data, ctx.Err())
		}
	}
}

// workingIn lists the processes whose working directory is dir.
func workingIn(dir string) ([]string, error) {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, err
	}
	links, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		return nil, err
	}
	var found []string
	for _, link := range links {
		// Unreadable is gone, a zombie, or somebody else's.
		if where, err := os.Readlink(link); err == nil && where == dir {
			found = append(found, filepath.Base(filepath.Dir(link)))
		}
	}
	return found, nil
}
