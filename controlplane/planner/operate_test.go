package planner_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/testkit"
)

// hanging is a driver whose operations named hangs-… wait for a shard that never answers.
type hanging struct {
	mu        sync.Mutex
	steps     map[string]int
	now, most map[string]int // by operation, and by kind
}

func (h *hanging) Step(ctx context.Context, _ core.Leader, op core.Operation) error {
	h.count(op, 1)
	defer h.count(op, -1)
	if strings.HasPrefix(op.ID, "hangs-") {
		<-ctx.Done()
	}
	return nil
}

func (h *hanging) count(op core.Operation, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, name := range []string{op.ID, op.Kind} {
		h.now[name] += n
		h.most[name] = max(h.most[name], h.now[name])
	}
	if n > 0 {
		h.steps[op.ID]++
	}
}

func (h *hanging) of(name string) (steps, now, most int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.steps[name], h.now[name], h.most[name]
}

func (r *rig) operation(id, kind string) {
	r.t.Helper()
	_, err := r.store.Update(testkit.Deadline(r.t), "put "+id, func(tx *store.Tx) error {
		_, _, err := tx.Operation(id)
		return errors.Join(err, tx.PutOperation(core.Operation{ID: id, Kind: kind, Subject: "c", State: core.OperationRunning, Actor: "ann", StartedAt: tx.Now()}))
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

// One shard that hangs holds up its own operation alone; many that hang hold up those of their kind, a bounded
// number of which is under way; no operation is ever taken twice at once; and the leadership ends with its steps.
func TestAHangingShardHoldsUpItsOwnOperation(t *testing.T) {
	r := newRig(t)
	h := &hanging{steps: map[string]int{}, now: map[string]int{}, most: map[string]int{}}
	r.operations.drive(h)
	r.lead()
	goesOn := func(name string) {
		t.Helper()
		before, _, _ := h.of(name)
		testkit.Eventually(t, wait, func() error {
			if steps, _, _ := h.of(name); steps < before+5 {
				return fmt.Errorf("%s took %d steps more", name, steps-before)
			}
			return nil
		})
	}
	r.operation("hangs-0", core.OperationFence)
	testkit.Eventually(t, wait, func() error {
		if steps, _, _ := h.of("hangs-0"); steps == 0 {
			return errors.New("not begun")
		}
		return nil
	})
	r.operation("fence", core.OperationFence)
	r.operation("limit", core.OperationSetLimit)
	goesOn("fence")
	goesOn("limit")
	for n := range 12 {
		r.operation(fmt.Sprintf("hangs-%d", n+1), core.OperationFence)
	}
	testkit.Eventually(t, wait, func() error {
		if _, now, _ := h.of(core.OperationFence); now < 8 {
			return fmt.Errorf("%d under way", now)
		}
		return nil
	})
	goesOn("limit")
	r.stopLead()
	if _, now, most := h.of(core.OperationFence); now != 0 || most != 8 {
		t.Errorf("%d fences under way after the leadership, %d at once, want 0 and 8", now, most)
	}
	for _, id := range []string{"hangs-0", "fence", "limit"} {
		if steps, _, most := h.of(id); most != 1 {
			t.Errorf("%s was taken %d times at once in %d steps", id, most, steps)
		}
	}
}
