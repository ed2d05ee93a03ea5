//go:build system || chaos

package system

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cellquota/cellquota/deploy/local/platform"
	"github.com/cellquota/cellquota/internal/testkit"
)

// controlPlaneChaos kills and freezes replicas and members of etcd, and moves etcd's
// leader, at random for as long as it is told, under top-ups, returns, transfers and
// changes of the limit. It shows, in order: I1 at every revision (the checker walks
// etcd's history), that every intent is finished, that every id stands at most once in
// the journal, and that a repeat of every mutation answers and moves nothing.
func controlPlaneChaos(t *testing.T, hold time.Duration, seed uint64) {
	t.Helper()
	t.Logf("CHAOS_SEED=%d, %s", seed, hold)
	p := start(t, "--cells", "2", "--control-planes", "3", "--etcd", "cluster3", "--restart", "--set", "controlplane.leader_ttl=2s", "--set", "etcd.auto-compaction=0")
	p.publish(sale{ID: "ha", Limit: 1000, Reserve: 400, TTL: "60s", Stock: 2000})
	stop := p.check()
	r := rand.New(rand.NewPCG(seed, 3))
	m := &mutations{p: p, r: rand.New(rand.NewPCG(seed, 4))}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			m.next(ctx)
		}
	}()
	faults := 0
	for end := time.Now().Add(hold); time.Now().Before(end); faults++ {
		testkit.Hold(t, time.Duration(200+r.IntN(1500))*time.Millisecond, "a random moment between two faults")
		p.controlPlaneFault(r)
	}
	cancel()
	<-done
	p.allReady()

	// 1. Every mutation is driven to its end; what was refused stays refused.
	outcomes := map[int]int{}
	for _, args := range m.made {
		testkit.Eventually(t, 90*time.Second, func() error {
			_, code := p.ctl(args...)
			if code != 0 && code != 4 {
				return fmt.Errorf("%v: exit %d", args, code)
			}
			outcomes[code]++
			return nil
		})
	}
	// 2. Nothing is open any more.
	testkit.Eventually(t, 60*time.Second, p.nothingOpen)
	// 3. Every id once, and a repeat moves nothing.
	ids := p.journalIDs()
	for id, n := range ids {
		if n != 1 {
			t.Errorf("adjustment %s stands %d times in the journal", id, n)
		}
	}
	before := p.must("quota", "list", "ha", "-o", "csv")
	for _, args := range m.made {
		if out, code := p.ctl(args...); code != 0 && code != 4 {
			t.Errorf("the repeat of %v: exit %d, %s", args, code, out)
		}
	}
	if after := p.must("quota", "list", "ha", "-o", "csv"); after != before {
		t.Errorf("repeats moved units:\n%s\n%s", before, after)
	}
	stop()
	p.must("verify", "--campaign", "ha", "--timeout", "120s")
	t.Logf("%d faults, %d mutations (by exit code %v), %d adjustments", faults, len(m.made), outcomes, len(ids))
	if len(m.made) < 3 || outcomes[0] == 0 {
		t.Errorf("too little was done: %d mutations, %v", len(m.made), outcomes)
	}
}

// mutations makes random moves of units, each under an id of its own.
type mutations struct {
	p    *local
	r    *rand.Rand
	made [][]string // each as it is repeated until it is decided
}

// next makes one move; its answer may be lost.
func (m *mutations) next(ctx context.Context) {
	id := fmt.Sprintf("chaos-%d", len(m.made))
	from, to := "cell-1", "cell-2"
	if m.r.IntN(2) == 0 {
		from, to = to, from
	}
	units := fmt.Sprint(1 + m.r.IntN(20))
	var args []string
	switch m.r.IntN(5) {
	case 0, 1:
		args = []string{"quota", "top-up", "ha", "phone-x", to, units}
	case 2:
		args = []string{"quota", "return", "ha", "phone-x", from, units}
	case 3:
		args = []string{"quota", "transfer", "ha", "phone-x", units, "--from", from, "--to", to}
	case 4:
		args = []string{"campaign", "set-limit", "ha", "phone-x", fmt.Sprint(900 + m.r.IntN(300))}
	}
	args = append(args, "--operation-id", id, "--reason", "chaos", "--yes", "--timeout", "20s")
	m.made = append(m.made, args)
	if ctx.Err() == nil {
		_, _ = m.p.ctl(append(slices.Clone(args), "--no-wait")...)
	}
}

// controlPlaneFault is one random fault. At most one member of etcd is hurt at a
// time: two of three are needed for a write, and this test is not about none.
func (p *local) controlPlaneFault(r *rand.Rand) {
	p.t.Helper()
	kind, n := "controlplane", 1+r.IntN(3)
	switch r.IntN(5) {
	case 0, 1:
		kind = "etcd"
	case 2:
		p.moveEtcdLeader(r)
		return
	}
	victim := fmt.Sprintf("%s-%d", kind, n)
	if r.IntN(2) == 0 {
		p.kill(victim)
	} else {
		p.freeze(victim, time.Duration(200+r.IntN(4000))*time.Millisecond)
	}
	if kind == "etcd" {
		testkit.Eventually(p.t, 60*time.Second, func() error { return p.isReady(victim) })
	}
}

// freeze stops a process for a while, as a pause of its machine would.
func (p *local) freeze(victim string, hold time.Duration) {
	p.t.Helper()
	p.t.Logf("freeze %s for %s", victim, hold)
	if _, err := p.Kill(p.t.Context(), victim, platform.STOP); err != nil {
		return // it is down already
	}
	testkit.Hold(p.t, hold, "frozen")
	if _, err := p.Kill(p.t.Context(), victim, platform.CONT); err != nil {
		p.t.Logf("continue %s: %v", victim, err)
	}
}

func (p *local) isReady(name string) error {
	list, err := p.Processes(p.t.Context())
	if err != nil {
		return err
	}
	for _, x := range list {
		if x.Name == name && x.State != platform.StateReady {
			return fmt.Errorf("%s is %s", name, x.State)
		}
	}
	return nil
}

// moveEtcdLeader lets another member lead etcd; nothing, when none answers just now.
func (p *local) moveEtcdLeader(r *rand.Rand) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 5*time.Second)
	defer cancel()
	for _, endpoint := range p.endpoints().Etcd.Endpoints {
		client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: time.Second})
		if err != nil {
			p.t.Fatal(err)
		}
		defer func() { _ = client.Close() }()
		ask, done := context.WithTimeout(ctx, time.Second)
		st, err := client.Status(ask, endpoint)
		done()
		if err != nil || st.Leader != st.Header.MemberId {
			continue
		}
		members, err := client.MemberList(ctx)
		if err != nil {
			return
		}
		var others []uint64
		for _, m := range members.Members {
			if m.ID != st.Leader {
				others = append(others, m.ID)
			}
		}
		to := others[r.IntN(len(others))]
		_, err = client.MoveLeader(ctx, to)
		p.t.Logf("etcd's leader moves to %x: %v", to, err)
		return
	}
}

// adjustments are those of the journal, as `quota history` shows them.
func (p *local) adjustments(campaign string) ([]adjustment, error) {
	out, code := p.ctl("quota", "history", campaign, "--limit", "100000", "-o", "json")
	if code != 0 {
		return nil, fmt.Errorf("quota history: exit %d", code)
	}
	var answer struct {
		Adjustments []adjustment `json:"adjustments"`
	}
	err := json.Unmarshal([]byte(out), &answer)
	return answer.Adjustments, err
}

type adjustment struct {
	ID    string `json:"adjustment_id"`
	Cell  string `json:"cell_id"`
	Kind  string `json:"kind"`
	Units int    `json:"units"`
	State string `json:"state"`
}

// nothingOpen is nil when every intent and every operation has ended.
func (p *local) nothingOpen() error {
	list, err := p.adjustments("ha")
	if err != nil {
		return err
	}
	for _, a := range list {
		if a.State == "PROPOSED" || a.State == "BOOKED" {
			return fmt.Errorf("adjustment %s is %s", a.ID, a.State)
		}
	}
	out, code := p.ctl("op", "list", "--open", "-o", "name")
	if open := strings.TrimSpace(out); code != 0 || open != "" {
		return fmt.Errorf("open operations: %q (exit %d)", open, code)
	}
	return nil
}

// journalIDs counts how often each adjustment stands in the journal.
func (p *local) journalIDs() map[string]int {
	p.t.Helper()
	list, err := p.adjustments("ha")
	if err != nil {
		p.t.Fatal(err)
	}
	ids := map[string]int{}
	for _, a := range list {
		ids[a.ID]++
	}
	return ids
}
