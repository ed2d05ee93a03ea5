//go:build system

package system

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cellquota/cellquota/deploy/local/platform"
	"github.com/cellquota/cellquota/edge/client"
	"github.com/cellquota/cellquota/internal/testkit"
)

// A lottery from the first entry to the last unit, on a whole platform: customers of two cells enter, the
// draw is refused while they may, each cell is granted what its customers won, winners alone buy, and the
// draw can be repeated from its evidence.
func TestLottery(t *testing.T) {
	const users, units = 60, 12
	p := start(t, "--cells", "2")
	stop := p.check()
	now := time.Now()
	closes := now.Add(25 * time.Second)
	s := sale{
		ID: "drawn", Limit: units, TTL: "5m", Open: closes.Format(time.RFC3339), Close: now.Add(time.Hour).Format(time.RFC3339), Cells: []string{"cell-1", "cell-2"},
		Rules: fmt.Sprintf("mode: LOTTERY\nlottery: {entry_open_at: %s, entry_close_at: %s, tiers: {gold: 5}}", now.Add(-time.Minute).Format(time.RFC3339), closes.Format(time.RFC3339)),
	}
	var text bytes.Buffer
	if err := campaignFile.Execute(&text, s); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "drawn.yaml")
	if err := os.WriteFile(file, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	p.must("campaign", "create", "-f", file)
	p.must("campaign", "publish", "drawn", "--timeout", "60s")

	secret, err := os.ReadFile(platform.IdentitySecretFile(p.dir))
	if err != nil {
		t.Fatal(err)
	}
	caller, err := client.New(client.Config{BaseURLs: []string{p.endpoints().Edges[0].HTTP}, Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer caller.Close()
	token := func(n int) string {
		claims := client.TokenClaims{Issuer: platform.TokenIssuer, Audience: platform.TokenAudience, User: fmt.Sprintf("entrant-%d", n), Expires: time.Now().Add(time.Hour)}
		if n%10 == 0 {
			claims.More = map[string]any{"tier": "gold"}
		}
		signed, err := client.SignToken([]byte(strings.TrimSuffix(string(secret), "\n")), claims)
		if err != nil {
			t.Fatal(err)
		}
		return signed
	}
	entries := make([]client.Entry, users)
	for n := range users {
		entry, a, err := caller.Enter(t.Context(), token(n), "drawn", "phone-x", 0)
		if err != nil || a.Status != 202 || entry.State != "ENTERED" || (entry.Tickets == 5) != (n%10 == 0) {
			t.Fatalf("entrant %d: %d %s, %+v, %v", n, a.Status, a.Code, entry, err)
		}
		entries[n] = entry
	}
	if again, a, err := caller.Enter(t.Context(), token(0), "drawn", "phone-x", 0); err != nil || a.Status != 202 || again.EntryID != entries[0].EntryID {
		t.Errorf("the repeat: %d, %+v, %v", a.Status, again, err)
	}
	if _, a, err := caller.Entry(t.Context(), token(1), "drawn", "phone-x", entries[0].EntryID); err != nil || a.Status != 404 {
		t.Errorf("somebody else's entry: %d, %v", a.Status, err)
	}
	if time.Now().Before(closes) {
		if out, code := p.said("lottery", "draw", "drawn", "--yes"); code != 4 && time.Now().Before(closes) {
			t.Errorf("a draw while entry is open: exit %d, %s", code, out)
		}
	}
	testkit.Eventually(t, time.Minute, func() error {
		if out, code := p.said("lottery", "draw", "drawn", "--beacon", "index 3041.17", "--reason", "noon", "--operation-id", "the-draw", "--yes", "--timeout", "30s"); code != 0 {
			return fmt.Errorf("exit %d: %s", code, out)
		}
		return nil
	})
	if out, code := p.said("lottery", "draw", "drawn", "--beacon", "another", "--yes"); code != 4 {
		t.Errorf("drawn twice: exit %d, %s", code, out)
	}
	p.must("lottery", "verify", "drawn")
	if _, a, err := caller.Enter(t.Context(), token(users), "drawn", "phone-x", 1); err != nil || a.Status != 410 {
		t.Errorf("too late, as a repeat: %d %s, %v", a.Status, a.Code, err)
	}
	if again, a, err := caller.Enter(t.Context(), token(0), "drawn", "phone-x", 2); err != nil || a.Status != 202 || again.EntryID != entries[0].EntryID {
		t.Errorf("a repeat whose answer was lost: %d, %+v, %v", a.Status, again, err)
	}

	won := 0
	for n, entry := range entries {
		now, a, err := caller.Entry(t.Context(), token(n), "drawn", "phone-x", entry.EntryID)
		if err != nil || a.Status != 200 || now.State == "ENTERED" {
			t.Fatalf("entrant %d after the draw: %d, %+v, %v", n, a.Status, now, err)
		}
		permit, a, err := caller.Permit(t.Context(), token(n), "drawn", "phone-x")
		if now.State == "LOST" {
			if err != nil || a.Status != 403 || a.Code != "NOT_ELIGIBLE" {
				t.Errorf("entrant %d lost and claims a permit: %d %s, %v", n, a.Status, a.Code, err)
			}
			continue
		}
		won++
		if err != nil || a.Status != 201 {
			t.Fatalf("entrant %d won and claims a permit: %d %s, %v", n, a.Status, a.Code, err)
		}
		testkit.Eventually(t, 20*time.Second, func() error { // its units are on their way to the cell
			_, a, err := caller.Buy(t.Context(), token(n), "drawn", "phone-x", client.Try{RequestID: "r", Quantity: 1, Permit: permit.Permit})
			if err != nil || !a.OK() {
				return fmt.Errorf("entrant %d won and buys: %d %s, %w", n, a.Status, a.Code, err)
			}
			return nil
		})
	}
	if won != units {
		t.Errorf("%d of %d won", won, units)
	}
	testkit.Eventually(t, 20*time.Second, func() error {
		if n := p.count("drawn", "SELECT count(*) FROM cellquota.v_orders WHERE campaign_id = $1"); n != units {
			return fmt.Errorf("%d orders of %d winners", n, units)
		}
		return nil
	})
	stop()
	p.must("verify", "--timeout", "60s")
}
