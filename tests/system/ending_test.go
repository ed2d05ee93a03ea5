//go:build system

package system

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cellquota/cellquota/internal/testkit"
)

// How campaigns end, on a whole platform: one is closed by hand with unpaid orders, says what it waits
// for, settles, accounts for every unit and keeps its journal in the archive; the next sells the same SKU
// and is cancelled by two people, with all money given back; a settled one is deleted, and its id is gone
// for good (R-010, I10).
func TestCampaignsEnd(t *testing.T) {
	const stock, limit = 100, 60
	p := start(t, "--cells", "2", "--set", "controlplane.settle.after=5s", "--set", "controlplane.settle.interval=100ms", "--set", "cell.provider.refund_after=1s")
	stop := p.check()

	p.publish(sale{ID: "closed", Limit: limit, Reserve: 20, TTL: "8s", Stock: stock})
	p.must("quota", "top-up", "closed", "phone-x", "cell-1", "5", "--operation-id", "by-hand", "--yes", "--timeout", "30s")
	p.sell("closed")
	p.must("campaign", "close", "closed", "--yes", "--reason", "over")
	if c := p.campaign("closed"); c.State != "CLOSED" || !c.blocked("settle.after") || !c.blocked("reservations are RESERVED") {
		t.Errorf("what it waits for: %+v", c)
	}
	p.must("verify", "--campaign", "closed", "--timeout", "60s")
	before := p.moves("closed")
	sold := p.settles("closed")
	if sold == 0 || sold == limit {
		t.Fatalf("%d sold: nothing to account for", sold)
	}
	if after := p.moves("closed"); len(after) < 3 || strings.Join(after, " ") != strings.Join(before, " ") {
		t.Errorf("the journal before it was archived: %v, after: %v", before, after)
	}

	p.publish(sale{ID: "recalled", Limit: stock - int(sold), Reserve: 0, TTL: "10m", Stock: stock - int(sold)}) // what was sold has left the warehouse
	p.sell("recalled")
	p.recall("recalled")
	if sold := p.settles("recalled"); sold != int64(p.count("recalled", "SELECT count(*) FROM cellquota.v_orders WHERE campaign_id = $1 AND state = 'PAID'")) {
		t.Errorf("NO_RESTOCK: %d are confirmed", sold)
	}

	p.must("campaign", "delete", "closed", "--yes", "--reason", "a year ago", "--timeout", "30s")
	if out, code := p.ctl("campaign", "get", "closed"); code != 3 {
		t.Errorf("a deleted campaign: exit %d, %s", code, out)
	}
	if out, code := p.create(sale{ID: "closed", Limit: 1, TTL: "8s"}); code != 4 {
		t.Errorf("its id again: exit %d, %s", code, out)
	}
	// The shards keep the rows of both: a fence moves nothing of them, and nothing is missed.
	p.must("verify", "--timeout", "60s")
	p.must("cell", "fence", "cell-2", "--force", "--reclaim", "--reason", "a drill", "--yes", "--timeout", "60s")
	stop()
	p.must("verify", "--timeout", "60s")
	p.account("recalled")
}

// sell lets customers buy: some pay, some cancel, the rest leave their orders unpaid.
func (p *local) sell(campaign string) {
	p.t.Helper()
	if code := <-p.load(p.t.Context(), "--campaign", campaign, "--sku", "phone-x", "--users", "24", "--rate", "40", "--pay", "0.4", "--cancel", "0.1", "--seed", "7", "--prefix", campaign, "--patience", "20s"); code != 0 {
		p.t.Fatalf("load: exit %d", code)
	}
	if s := p.sold(campaign + "/phone-x"); s.reserved == 0 || s.confirmed == 0 {
		p.t.Fatalf("%s: no unpaid or no paid order: %s", campaign, s)
	}
}

// recall cancels a campaign: a second person approves, then every unpaid order is closed and every paid one
// refunded.
func (p *local) recall(id string) {
	p.t.Helper()
	var dry struct {
		Unpaid int `json:"unpaid_orders"`
		Paid   int `json:"paid_orders"`
	}
	p.read(&dry, "campaign", "cancel", id, "--refund-all", "--dry-run")
	unpaid := p.count(id, "SELECT count(*) FROM cellquota.v_orders WHERE campaign_id = $1 AND state = 'PENDING_PAYMENT'")
	paid := p.count(id, "SELECT count(*) FROM cellquota.v_orders WHERE campaign_id = $1 AND state = 'PAID'")
	if dry.Unpaid != unpaid || dry.Paid != paid || unpaid == 0 || paid == 0 {
		p.t.Errorf("a dry run counts %+v, the shards have %d unpaid and %d paid orders", dry, unpaid, paid)
	}
	p.must("campaign", "cancel", id, "--refund-all", "--yes", "--reason", "recalled by the maker", "--operation-id", "recall", "--no-wait")
	if c := p.campaign(id); c.State != "OPEN" {
		p.t.Errorf("stopped before a second person approved: %+v", c)
	}
	if out, code := p.ctl("approval", "approve", "recall", "--yes", "--role", "campaign-manager"); code != 5 {
		p.t.Errorf("who asked for it approves: exit %d, %s", code, out)
	}
	p.must("approval", "approve", "recall", "--yes", "--reason", "checked with the maker")
	p.must("op", "wait", "recall", "--timeout", "60s") // 0: it is DONE
	if n := p.count(id, "SELECT count(*) FROM cellquota.v_orders WHERE campaign_id = $1 AND state = 'PENDING_PAYMENT'"); n > 0 {
		p.t.Errorf("%d orders are still unpaid", n)
	}
	if n := p.count(id, "SELECT count(*) FROM cellquota.v_refunds r JOIN cellquota.v_orders o USING (order_id) WHERE o.campaign_id = $1 AND o.state = 'PAID' AND r.state = 'REFUNDED'"); n != paid {
		p.t.Errorf("%d of %d paid orders are refunded", n, paid)
	}
	p.must("verify", "--campaign", id, "--timeout", "60s")
}

// settles waits for the end, and checks what is left of a campaign then; it gives what was sold.
func (p *local) settles(id string) (confirmed int64) {
	p.t.Helper()
	p.must("campaign", "wait", id, "--for", "SETTLED", "--timeout", "60s")
	if c := p.campaign(id); c.State != "SETTLED" || len(c.BlockedBy) > 0 {
		p.t.Errorf("%s is settled: %+v", id, c)
	}
	confirmed = p.account(id)
	p.wholeAccount(id, confirmed)
	testkit.Eventually(p.t, 30*time.Second, func() error { return p.pruned(id) })
	var verified struct {
		Checks []struct {
			Invariant string `json:"invariant"`
			Verdict   string `json:"verdict"`
		} `json:"checks"`
	}
	p.read(&verified, "verify", "--campaign", id, "--timeout", "60s")
	for _, c := range verified.Checks {
		if c.Invariant == "I10" && c.Verdict != "OK" {
			p.t.Errorf("%s has settled, and I10 is %s", id, c.Verdict)
		}
	}
	return confirmed
}

// wholeAccount checks the archived report: its verdict, and its orders against the shards'.
func (p *local) wholeAccount(id string, confirmed int64) {
	p.t.Helper()
	var report struct {
		Archived struct {
			SHA256 string `json:"sha256"`
		} `json:"archived"`
		Check struct {
			Verdict string `json:"verdict"`
		} `json:"check"`
		SKUs []struct {
			Confirmed int64 `json:"confirmed"`
			Counts    struct {
				Orders []struct {
					State  string `json:"state"`
					Orders int    `json:"orders"`
				} `json:"orders"`
			} `json:"counts"`
		} `json:"skus"`
	}
	p.read(&report, "campaign", "report", id)
	if len(report.SKUs) != 1 || report.Check.Verdict != "OK" || len(report.Archived.SHA256) != 64 || report.SKUs[0].Confirmed != confirmed {
		p.t.Fatalf("the report of %s: %+v", id, report)
	}
	for _, o := range report.SKUs[0].Counts.Orders {
		if n := p.count(id, "SELECT count(*) FROM cellquota.v_orders WHERE campaign_id = $1 AND state = '"+o.State+"'"); n != o.Orders {
			p.t.Errorf("%s: the report counts %d %s orders, the shards %d", id, o.Orders, o.State, n)
		}
	}
}

// account checks that every unit has its cause (I10); it gives what was sold.
func (p *local) account(id string) (confirmed int64) {
	p.t.Helper()
	var report struct {
		SKUs []struct {
			Limit     int64 `json:"sale_limit"`
			Confirmed int64 `json:"confirmed"`
			Cells     []struct {
				Cause string `json:"cause"`
				Units int64  `json:"units"`
			} `json:"cells"`
		} `json:"skus"`
	}
	p.read(&report, "undersell", id)
	if len(report.SKUs) != 1 {
		p.t.Fatalf("undersell: %+v", report)
	}
	sum, s := report.SKUs[0].Confirmed, p.sold(id+"/phone-x")
	for _, c := range report.SKUs[0].Cells {
		sum += c.Units
	}
	if sum != report.SKUs[0].Limit || report.SKUs[0].Confirmed != s.confirmed || s.reserved != 0 {
		p.t.Errorf("%s: the account %+v, the shards %s", id, report.SKUs[0], s)
	}
	return s.confirmed
}

// pruned is nil when etcd holds no record of the campaign any more.
func (p *local) pruned(id string) error {
	client, err := clientv3.New(clientv3.Config{Endpoints: p.endpoints().Etcd.Endpoints, DialTimeout: 5 * time.Second})
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithTimeout(p.t.Context(), 5*time.Second)
	defer cancel()
	resp, err := client.Get(ctx, "/cellquota/journal/", clientv3.WithPrefix())
	if err != nil {
		return err
	}
	for _, kv := range resp.Kvs {
		if strings.Contains(string(kv.Value), id) {
			return fmt.Errorf("%s is still in etcd", kv.Key)
		}
	}
	return nil
}

// ended is a campaign as `campaign get` shows it.
type ended struct {
	State     string   `json:"state"`
	BlockedBy []string `json:"blocked_by"`
}

func (e ended) blocked(by string) bool { return strings.Contains(strings.Join(e.BlockedBy, "\n"), by) }

func (p *local) campaign(id string) ended {
	p.t.Helper()
	var out struct {
		Campaign ended `json:"campaign"`
	}
	p.read(&out, "campaign", "get", id)
	return out.Campaign
}

// moves are the adjustments of the journal with their states, newest first.
func (p *local) moves(id string) (out []string) {
	p.t.Helper()
	list, err := p.adjustments(id)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, a := range list {
		out = append(out, a.ID+"="+a.State)
	}
	return out
}

// read runs cellctl for an answer in JSON.
func (p *local) read(into any, args ...string) {
	p.t.Helper()
	if out := p.must(append(args, "-o", "json")...); json.Unmarshal([]byte(out), into) != nil {
		p.t.Fatalf("cellctl %v: not what was expected: %s", args, out)
	}
}

// count sums a count over all shards.
func (p *local) count(campaign, query string) (sum int) {
	p.t.Helper()
	for _, cell := range p.endpoints().Cells {
		conn, err := pgx.Connect(p.t.Context(), cell.Postgres)
		var n int
		if err == nil {
			err = errors.Join(conn.QueryRow(p.t.Context(), query, campaign).Scan(&n), conn.Close(p.t.Context()))
		}
		if err != nil {
			p.t.Fatalf("cell %s: %v", cell.CellID, err)
		}
		sum += n
	}
	return sum
}

// word is the least answer of the cells to a query for one word.
func (p *local) word(campaign, query string) (least string) {
	p.t.Helper()
	for _, cell := range p.endpoints().Cells {
		conn, err := pgx.Connect(p.t.Context(), cell.Postgres)
		var s *string
		if err == nil {
			err = errors.Join(conn.QueryRow(p.t.Context(), query, campaign).Scan(&s), conn.Close(p.t.Context()))
		}
		if err != nil {
			p.t.Fatalf("cell %s: %v", cell.CellID, err)
		}
		if s != nil && (least == "" || *s < least) {
			least = *s
		}
	}
	return least
}
