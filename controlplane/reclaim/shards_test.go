package reclaim_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cellquota/cellquota/controlplane/reclaim"
	"github.com/cellquota/cellquota/controlplane/report/shards"
	"github.com/cellquota/cellquota/internal/rpcstatus"
)

// A file that holds no address is not told to whoever named it: the driver's own words repeat what it cannot
// parse. A device is not read at all.
func TestNoErrorHoldsAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "passwd")
	if err := os.WriteFile(file, []byte("root:hunter2:0:0:root:/root:/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := &world{t: t}
	for _, name := range []string{file, "/dev/zero", filepath.Join(t.TempDir(), "none")} {
		spec := w.spec("cell-1", name)
		_, install := reclaim.Files{}.Install(t.Context(), spec)
		_, held := reclaim.Files{}.Held(t.Context(), spec)
		reader := shards.New(shards.Options{})
		_, read := reader.Snapshot(t.Context(), name)
		reader.Close()
		for what, err := range map[string]error{"install": install, "held": held} {
			if !errors.Is(err, rpcstatus.ErrUnavailable) || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "root") {
				t.Errorf("%s of %s: %v", what, name, err)
			}
		}
		if !errors.Is(read, shards.ErrUnreachable) || strings.Contains(read.Error(), "hunter2") {
			t.Errorf("read of %s: %v", name, read)
		}
	}
}
