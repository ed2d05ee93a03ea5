//go:build system

package system

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cellquota/cellquota/internal/testkit"
)

// A cell of one process is killed and restarted in a sale. The group would keep its partitions for a session
// of 30 s; a process of the same name (orders.member) has them at once, and orders are made again.
func TestARestartDoesNotWaitForTheGroup(t *testing.T) {
	const session = 30 * time.Second
	p := start(t, "--cells", "1", "--restart", "--set", fmt.Sprintf("cell.orders.session_timeout=%s", session))
	p.publish(sale{ID: "restart", Limit: 5000, TTL: "10m"})
	choir, voices, silence := p.sing("restart", 50*time.Millisecond)
	defer silence()
	testkit.Eventually(t, 15*time.Second, func() error { return choir.sells(time.Time{}) })
	since := func(moment time.Time) int {
		return p.count("restart", "SELECT count(*) FROM cellquota.v_orders WHERE campaign_id = $1 AND created_at > '"+moment.UTC().Format(time.RFC3339Nano)+"'")
	}
	ordered := func(after time.Time) func() error {
		return func() error {
			if since(after) == 0 {
				return errors.New("no order is made")
			}
			return nil
		}
	}
	testkit.Eventually(t, 15*time.Second, ordered(time.Now()))
	p.kill("cell-1/p1")
	died := time.Now()
	testkit.Eventually(t, session/2, ordered(died.Add(100*time.Millisecond))) // what was under way may have committed
	t.Logf("orders again %s after the kill; customers were told %s", time.Since(died).Round(time.Millisecond), told(choir.between("cell-1", died, time.Now())))
	silence()
	p.holds("restart", voices)
}
