//go:build system

package system

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cellquota/cellquota/internal/testkit"
)

// a campaign with `admission: DATABASE`, from its file through the control plane, the cell and the
// edge. In mid-sale the cell's Redis and the broker are stopped and stay away: customers buy on, read their
// status by receipt, pay and cancel. Then one with a row per unit (`inventory_mode: TOKEN`), and one that
// answers on Redis's word (`ack_mode: REDIS`, R-048), whose process is killed in mid-sale: what was
// accepted is finished. verify holds all three to their histories.
func TestOtherWaysToSell(t *testing.T) {
	const stock = 10_000
	p := start(t, "--cells", "1", "--restart", "--set", "cell.payment.attempt_grace=2s")
	stop := p.check()

	direct := sale{ID: "direct", Limit: 2000, TTL: "5s", Stock: stock, Rules: "admission: DATABASE"}
	p.publish(direct)
	choir, voices, silence := p.sing(direct.ID, 50*time.Millisecond)
	defer silence()
	testkit.Eventually(t, 15*time.Second, func() error { return choir.sells(time.Time{}) })
	p.down("cell-1/redis")
	p.down("kafka")
	gone := time.Now()
	crowd := p.buyers(direct.ID, "60")
	testkit.Eventually(t, 15*time.Second, func() error { return choir.sells(gone) })
	silence()
	back := time.Now()
	judge(t, "cell-1", choir.between("cell-1", gone, back), throttled)
	for _, state := range []string{"PAID", "CLOSED"} {
		if n := p.count(direct.ID, "SELECT count(*) FROM cellquota.v_orders WHERE campaign_id = $1 AND state = '"+state+"'"); n == 0 {
			t.Errorf("without Redis and Kafka nobody's order became %s", state)
		}
	}
	p.started("kafka")
	p.started("cell-1/redis")
	p.quiet(direct.ID)
	p.holds(direct.ID, voices, crowd)

	serials := sale{ID: "serials", Limit: 40, TTL: "5s", Stock: stock, SKURules: "inventory_mode: TOKEN"}
	p.publish(serials)
	p.holdsAfter(serials.ID, p.buyers(serials.ID, "60"))
	s := p.sold(serials.ID + "/phone-x")
	if n := p.count(serials.ID, "SELECT count(*) FROM cellquota.v_tokens WHERE campaign_id = $1 AND state = 'SOLD'"); int64(n) != s.confirmed || n == 0 {
		t.Errorf("%d serials are sold; %s", n, s)
	}
	serial := p.word(serials.ID, "SELECT min(token_id) FROM cellquota.v_tokens WHERE campaign_id = $1 AND state = 'SOLD'")
	if out := p.must("trace", "token", serial); !strings.Contains(out, "CONFIRM") || !strings.Contains(out, "PAID") || !strings.Contains(out, serial) {
		t.Errorf("the story of %s:\n%s", serial, out)
	}

	p.lastUnit(sale{ID: "last", Limit: 1, TTL: "10m", Stock: stock})

	quick := sale{ID: "quick", Limit: 2000, TTL: "5s", Stock: stock, Rules: "ack_mode: REDIS"}
	p.publish(quick)
	choir, voices, silence = p.sing(quick.ID, 50*time.Millisecond)
	defer silence()
	testkit.Eventually(t, 15*time.Second, func() error { return choir.sells(time.Time{}) })
	p.kill("cell-1/p1")
	died := time.Now()
	testkit.Eventually(t, 40*time.Second, func() error { return choir.sells(died) })
	silence()
	p.quiet(quick.ID)
	stop()
	p.holds(quick.ID, voices)
}

// lastUnit is K85 through the doors that people use: 200 customers at the edge and an operator's `quota return` are
// after one unit at the same time. One of them has it.
func (p *local) lastUnit(s sale) {
	p.t.Helper()
	p.publish(s)
	done := p.load(p.t.Context(), "--campaign", s.ID, "--sku", "phone-x", "--users", "200", "--rate", "0", "--press", "2", "--pay", "1", "--patience", "20s", "--prefix", s.ID)
	out, code := p.ctl("quota", "return", s.ID, "phone-x", "cell-1", "1", "--operation-id", "last-one", "--yes", "--timeout", "30s")
	if <-done != 0 || code != 0 && code != 4 {
		p.t.Errorf("load, or the return: exit %d, %s", code, out)
	}
	back := 0
	if code == 0 {
		back = 1
	}
	if orders := p.count(s.ID, "SELECT count(*) FROM cellquota.v_orders WHERE campaign_id = $1"); orders+back != 1 {
		p.t.Errorf("%d orders, and %d came back, of one unit", orders, back)
	}
	p.holdsAfter(s.ID)
	p.must("verify", "--campaign", s.ID, "--timeout", "30s")
}

// buyers lets some customers of every kind buy, and gives their history.
func (p *local) buyers(campaign, users string) (history string) {
	p.t.Helper()
	history = filepath.Join(p.t.TempDir(), campaign+".jsonl")
	if code := <-p.load(p.t.Context(), "--campaign", campaign, "--sku", "phone-x", "--users", users, "--rate", "30", "--repeat", "0.2", "--second", "0.1", "--press", "2",
		"--pay", "0.5", "--cancel", "0.2", "--patience", "20s", "--history", history, "--seed", "11", "--prefix", campaign); code != 0 {
		p.t.Fatalf("load of %s: exit %d", campaign, code)
	}
	return history
}

func (p *local) holdsAfter(campaign string, histories ...string) {
	p.t.Helper()
	p.quiet(campaign)
	p.holds(campaign, histories...)
}

// holds verifies a campaign that is quiet against what its customers were told.
func (p *local) holds(campaign string, histories ...string) {
	p.t.Helper()
	for _, file := range histories {
		testkit.Eventually(p.t, 60*time.Second, func() error {
			if out, code := p.ctl("verify", "--campaign", campaign, "--history", file, "--timeout", "30s"); code != 0 {
				return fmt.Errorf("verify: exit %d\n%s", code, out)
			}
			return nil
		})
	}
}
