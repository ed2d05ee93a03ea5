package cell

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cellquota/cellquota/internal/clock"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

func keyFile(t *testing.T, dir, use, kid, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, use), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, use, kid), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A process goes by the states that the leader sends, tells of the files that it has, and names what
// cannot be read without ceasing to serve.
func TestKeysFollowTheLeader(t *testing.T) {
	dir := t.TempDir()
	keyFile(t, dir, "permit", "k1", strings.Repeat("a", 32))
	keyFile(t, dir, "receipt", "r1", strings.Repeat("b", 32))
	p := &parts{cfg: Config{KeysDir: dir}, log: slog.New(slog.DiscardHandler)}
	if err := p.loadKeys(); err != nil {
		t.Fatal(err)
	}
	beat := newPulse(nil, nil, nil, p.rings(), clock.System(), p.log)
	keyFile(t, dir, "receipt", "r2", strings.Repeat("c", 32))
	beat.reload()
	if got := p.keyNames(); !slices.Equal(got, []string{"permit/k1", "receipt/r1", "receipt/r2"}) {
		t.Fatalf("tells of %v", got)
	}
	now := time.Unix(1000, 0)
	p.followKeys([]*pb.KeyInfo{{Use: "receipt", Kid: "r1", State: "ACTIVE", NotBeforeMs: 1}, {Use: "receipt", Kid: "r2", State: "PENDING"}})
	if _, kid := p.receipts.Signer(now); kid != "r1" {
		t.Errorf("%s signs", kid)
	}
	p.followKeys([]*pb.KeyInfo{{Use: "receipt", Kid: "r1", State: "REVOKED"}, {Use: "receipt", Kid: "r2", State: "ACTIVE", NotBeforeMs: 2}})
	p.followKeys([]*pb.KeyInfo{{Use: "permit", Kid: "k1", State: "ACTIVE"}}) // says nothing of receipts
	if _, kid := p.receipts.Signer(now); kid != "r2" || p.receipts.Keys().Has("r1") {
		t.Errorf("%s signs, %v verify", kid, p.receipts.Keys())
	}
	keyFile(t, dir, "permit", "k2", "short")
	beat.reload()
	if fault := p.keyFault(); !strings.Contains(fault, filepath.Join("permit", "k2")) || !p.permits.Keys().Has("k1") {
		t.Errorf("fault %q, %v verify", fault, p.permits.Keys())
	}
	again := &parts{cfg: Config{KeysDir: dir}, log: p.log}
	if err := os.Remove(filepath.Join(dir, "permit", "k2")); err != nil {
		t.Fatal(err)
	}
	if err := again.loadKeys(); err != nil || again.receipts.Keys().Has("r1") {
		t.Errorf("a restart that hears nothing brought r1 back: %v", err)
	}
}
