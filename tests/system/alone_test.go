//go:build system

package system

import (
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cellquota/cellquota/internal/testkit"
)

// K45 and K71: the control plane's store is full, and then it and the control plane are gone for a whole sale.
// The sale does not notice: each cell sells its own allocation to the last unit, also after a restart of the
// cell, and the reserve stays where it is. Units that need the control plane are refused by name while it
// cannot write, and move again afterwards; nothing was granted twice.
func TestCellsSellAlone(t *testing.T) {
	const limit, reserve = 400, 100
	p := start(t, "--cells", "2", "--set", "etcd.quota-backend-bytes=16777216")
	p.publish(sale{ID: "alone", Limit: limit, Reserve: reserve, TTL: "10m"})
	stop := p.check()
	choir, voices, silence := p.sing("alone", 100*time.Millisecond)
	defer silence()
	testkit.Eventually(t, 15*time.Second, func() error { return choir.sells(time.Time{}) })

	// K45.
	room := p.fillEtcd()
	full := time.Now()
	out, code := p.said("quota", "top-up", "alone", "phone-x", "cell-1", "10", "--operation-id", "while-full", "--yes", "--timeout", "5s")
	if code != 6 || !strings.Contains(out, "NOSPACE") {
		t.Errorf("a top-up while etcd is full: exit %d, %s", code, out)
	}
	if out := p.must("status"); !strings.Contains(out, "NOSPACE") {
		t.Errorf("status does not show it:\n%s", out)
	}
	testkit.Hold(t, 2*time.Second, "a sale while etcd is full")
	judge(t, "cell-1", choir.between("cell-1", full, time.Now()), nil)
	judge(t, "cell-2", choir.between("cell-2", full, time.Now()), nil)
	room()
	p.must("quota", "top-up", "alone", "phone-x", "cell-1", "10", "--operation-id", "while-full", "--yes", "--timeout", "30s")
	before := p.must("quota", "list", "alone", "-o", "csv")

	// K71.
	p.down("controlplane-1")
	p.down("etcd")
	gone := time.Now()
	testkit.Eventually(t, 15*time.Second, func() error { return choir.sells(gone) })
	p.down("cell-1/p1")
	p.started("cell-1/p1")
	back := time.Now()
	testkit.Eventually(t, 30*time.Second, func() error { return choir.sells(back) })
	const allocated = limit - reserve + 10
	testkit.Eventually(t, 60*time.Second, func() error {
		if s := p.sold("alone/phone-x"); s.granted != allocated || s.reserved+s.confirmed != allocated {
			return fmt.Errorf("%s of %d", s, allocated)
		}
		return nil
	})
	end := time.Now()
	testkit.Hold(t, 1500*time.Millisecond, "nothing is left")
	for _, cell := range []string{"cell-1", "cell-2"} {
		if counts := choir.between(cell, end.Add(time.Second), time.Now()); counts["409 TEMP_SOLD_OUT"] == 0 || len(counts) != 1 {
			t.Errorf("%s's customers were told %s", cell, told(counts))
		}
	}

	p.started("etcd")
	p.started("controlplane-1")
	p.allReady()
	testkit.Eventually(t, 60*time.Second, func() error {
		if out, code := p.ctl("verify", "--campaign", "alone", "--timeout", "20s"); code != 0 {
			return fmt.Errorf("verify: exit %d\n%s", code, out)
		}
		return nil
	})
	if after := p.must("quota", "list", "alone", "-o", "csv"); after != before {
		t.Errorf("the books before:\n%s\nand after:\n%s", before, after)
	}
	testkit.Eventually(t, 30*time.Second, func() error { return p.reported(allocated) })
	late := time.Now()
	p.must("quota", "top-up", "alone", "phone-x", "cell-2", fmt.Sprint(reserve-10), "--operation-id", "the-rest", "--yes", "--timeout", "60s")
	testkit.Eventually(t, 30*time.Second, func() error {
		if !choir.accepted("cell-2", late) {
			return fmt.Errorf("cell-2 sells nothing of its top-up")
		}
		return nil
	})
	silence()
	stop()
	p.must("verify", "--campaign", "alone", "--history", voices, "--timeout", "120s")
	if s := p.sold("alone/phone-x"); s.granted != limit {
		t.Errorf("the shards: %s", s)
	}
}

// reported is nil when the cells' reports have caught up: what they hold, sold and unpaid, is so many units.
func (p *local) reported(units int) error {
	p.t.Helper()
	sum := 0
	for _, cell := range p.endpoints().Cells {
		var answer struct {
			Cell struct {
				Stale bool `json:"report_stale"`
				Units int  `json:"units_at_risk"`
			} `json:"cell"`
		}
		p.read(&answer, "cell", "get", cell.CellID)
		if answer.Cell.Stale {
			return fmt.Errorf("%s has not reported", cell.CellID)
		}
		sum += answer.Cell.Units
	}
	if sum != units {
		return fmt.Errorf("the cells report %d units, want %d", sum, units)
	}
	return nil
}

// fillEtcd writes until etcd raises NOSPACE; the function it gives makes room and disarms the alarm, as the
// runbook says.
func (p *local) fillEtcd() (room func()) {
	p.t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: p.endpoints().Etcd.Endpoints, DialTimeout: 5 * time.Second})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = client.Close() })
	ctx := p.t.Context()
	ballast := strings.Repeat("x", 1<<20)
	for i := 0; err == nil; i++ {
		if i > 64 {
			p.t.Fatal("64 MiB fit into 16")
		}
		_, err = client.Put(ctx, fmt.Sprintf("/ballast/%d", i), ballast)
	}
	p.t.Logf("etcd is full: %v", err)
	return func() {
		p.t.Helper()
		gone, err := client.Delete(ctx, "/ballast/", clientv3.WithPrefix())
		if err != nil {
			p.t.Fatal(err)
		}
		_, err = client.Compact(ctx, gone.Header.Revision, clientv3.WithCompactPhysical())
		if err == nil {
			_, err = client.Defragment(ctx, client.Endpoints()[0])
		}
		if err == nil {
			_, err = client.AlarmDisarm(ctx, &clientv3.AlarmMember{})
		}
		if err != nil {
			p.t.Fatal(err)
		}
	}
}

// AUTO top-up: one busy cell gets tranches that shrink with the reserve until nothing is left of it, and
// the whole limit is sold.
func TestAutoTopUp(t *testing.T) {
	const limit, reserve = 300, 120
	p := start(t, "--cells", "2")
	p.publish(sale{ID: "auto", Limit: limit, Reserve: reserve, TTL: "10m", TopUp: `{policy: AUTO, low_water: "30%", tranche: "40%"}`})
	stop := p.check()
	choir, voices, silence := p.sing("auto", 20*time.Millisecond, "cell-1")
	defer silence()
	const busy = (limit-reserve)/2 + reserve
	testkit.Eventually(t, 60*time.Second, func() error {
		if s := p.sold("auto/phone-x"); s.reserved != busy || s.granted != limit {
			return fmt.Errorf("%s, want %d reserved", s, busy)
		}
		return nil
	})
	silence()
	t.Logf("cell-1's customers were told %s", told(choir.between("cell-1", time.Time{}, time.Now())))
	var tranches []int
	left := reserve
	list, err := p.adjustments("auto")
	if err != nil {
		t.Fatal(err)
	}
	for i := len(list) - 1; i >= 0; i-- { // newest first
		if a := list[i]; a.Kind == "GRANT" && !strings.HasPrefix(a.ID, "grant0.") {
			if a.Cell != "cell-1" || a.State != "DONE" {
				t.Errorf("%+v", a)
			}
			if want := max(1, left*40/100); a.Units != want {
				t.Errorf("tranche %d is of %d units with %d in the reserve, want %d", len(tranches)+1, a.Units, left, want)
			}
			tranches = append(tranches, a.Units)
			left -= a.Units
		}
	}
	t.Logf("tranches %v", tranches)
	if left != 0 || len(tranches) < 4 {
		t.Errorf("%d are left in the reserve after %v", left, tranches)
	}
	rest, more, hush := p.sing("auto", 20*time.Millisecond, "cell-2")
	defer hush()
	testkit.Eventually(t, 30*time.Second, func() error {
		if s := p.sold("auto/phone-x"); s.reserved != limit {
			return fmt.Errorf("%s of %d; cell-2's customers were told %s", s, limit, told(rest.between("cell-2", time.Time{}, time.Now())))
		}
		return nil
	})
	hush()
	stop()
	for _, file := range []string{voices, more} {
		p.must("verify", "--campaign", "auto", "--history", file, "--timeout", "120s")
	}
}
