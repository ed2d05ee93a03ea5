package closer

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/cellquota/cellquota/cell/shard"
)

// A fenced cell's closer tried every second and warned every second, for as long as the cell was fenced.
func TestAProcessThatMayNotWriteIsQuiet(t *testing.T) {
	for err, want := range map[error]slog.Level{
		shard.ErrNoWriter: slog.LevelDebug, shard.ErrFenced: slog.LevelDebug, shard.ErrState: slog.LevelDebug,
		shard.ErrUnavailable: slog.LevelWarn, shard.ErrUnknownCommit: slog.LevelWarn,
	} {
		if got := level(fmt.Errorf("close_due: %w", err)); got != want {
			t.Errorf("%v is logged as %s, want %s", err, got, want)
		}
	}
}
