package planner_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/testkit"
)

// ask begins an operation that needs a second person's word.
func (r *rig) ask(id string, ttl time.Duration) {
	r.t.Helper()
	_, err := r.store.Update(testkit.Deadline(r.t), "ask", func(tx *store.Tx) error {
		_, _, e1 := tx.Operation(id)
		_, _, e2 := tx.Approval(id)
		op, a := core.Operation{ID: id, Kind: core.OperationReclaim, Subject: "cell-1", Actor: "ann", StartedAt: tx.Now()}.AskApproval(ttl, tx.Now())
		return errors.Join(e1, e2, tx.PutOperation(op), tx.PutApproval(a))
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) decide(id string, decision func(core.Approval) (core.Approval, error)) {
	r.t.Helper()
	_, err := r.store.Update(testkit.Deadline(r.t), "decide", func(tx *store.Tx) error {
		a, _, err := tx.Approval(id)
		if err != nil {
			return err
		}
		if a, err = decision(a); err != nil {
			return err
		}
		return tx.PutApproval(a)
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) driven(id string) int {
	r.operations.mu.Lock()
	defer r.operations.mu.Unlock()
	return r.operations.asked[id]
}

// An operation that needs a second person's word reaches no driver before the
// word is given; refused or not decided in time, it ends ABORTED and says why.
func TestNothingStepsWithoutItsApproval(t *testing.T) {
	r := newRig(t)
	r.lead()
	for _, id := range []string{"approved", "rejected"} {
		r.ask(id, time.Hour)
	}
	r.ask("late", time.Millisecond)
	late := r.until("late", core.OperationAborted)
	if a, _ := r.view.Snapshot().Approval("late"); a.State != core.ApprovalExpired || !strings.Contains(late.Detail, "expired") {
		t.Errorf("the late one: approval %s, operation says %q", a.State, late.Detail)
	}
	now := time.Now()
	r.decide("rejected", func(a core.Approval) (core.Approval, error) { return a.Reject("bob", "too dear", now) })
	if op := r.until("rejected", core.OperationAborted); !strings.Contains(op.Detail, "bob") || !strings.Contains(op.Detail, "too dear") {
		t.Errorf("the rejected one says %q", op.Detail)
	}
	if n := r.driven("approved"); n != 0 {
		t.Errorf("driven %d times before a decision", n)
	}
	if op, _ := r.view.Snapshot().Operation("approved"); op.State != core.OperationPending {
		t.Errorf("the undecided one is %s", op.State)
	}
	r.decide("approved", func(a core.Approval) (core.Approval, error) { return a.Approve("bob", "", now) })
	testkit.Eventually(t, wait, func() error {
		if r.driven("approved") == 0 {
			return fmt.Errorf("not driven after its approval")
		}
		return nil
	})
	if r.driven("rejected")+r.driven("late") != 0 {
		t.Error("an operation without approval reached its driver")
	}
	if !strings.Contains(fmt.Sprint(audits(t, r)), "approval late") {
		t.Error("the expiry left no audit record")
	}
}

// audits gives the keys and values under /audit/, as text.
func audits(t *testing.T, r *rig) (out []string) {
	t.Helper()
	got, err := r.etcd.Client(t).Get(context.Background(), "/cellquota/audit/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range got.Kvs {
		out = append(out, string(kv.Value))
	}
	return out
}
