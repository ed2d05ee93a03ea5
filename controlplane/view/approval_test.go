package view_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/testkit"
)

// The mirror shows approvals by id, newest first page by page, and those that
// wait, oldest first; both from a list and from the watch.
func TestApprovalsInTheView(t *testing.T) {
	s, err := store.Open(store.Config{Endpoints: testkit.Etcd(t, 1).Endpoints(), Prefix: "/cellquota"}, store.Deps{Clock: clock.System()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	now := time.Date(2026, 11, 11, 0, 0, 0, 0, time.UTC)
	put := func(id string, decide bool) int64 {
		op, a := core.Operation{ID: id, Kind: "cancel-campaign", Subject: "c", Actor: "ann"}.AskApproval(time.Hour, now)
		if decide {
			if a, err = a.Approve("bob", "", now); err != nil {
				t.Fatal(err)
			}
		}
		revision, err := s.Update(testkit.Deadline(t), "ask", func(tx *store.Tx) error {
			_, _, e1 := tx.Operation(id)
			_, _, e2 := tx.Approval(id)
			return errors.Join(e1, e2, tx.PutOperation(op), tx.PutApproval(a))
		})
		if err != nil {
			t.Fatal(err)
		}
		return revision
	}
	put("a", false)
	put("b", true)
	v, err := view.New(s, view.Deps{Clock: clock.System()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = v.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	snapshot, err := v.WaitFor(testkit.Deadline(t), put("c", false))
	if err != nil {
		t.Fatal(err)
	}
	names := func(in []core.Approval) (out string) {
		for _, a := range in {
			out += a.ID
		}
		return out
	}
	first := snapshot.Approvals(0, 2)
	if got := names(first); got != "cb" {
		t.Fatalf("first page %q, want cb", got)
	}
	if got := names(snapshot.Approvals(first[1].CreateRevision, 2)); got != "a" {
		t.Errorf("second page %q, want a", got)
	}
	if got := names(snapshot.PendingApprovals()); got != "ac" {
		t.Errorf("pending %q, want ac", got)
	}
	if a, found := snapshot.Approval("b"); !found || a.State != core.ApprovalApproved || a.Approver != "bob" {
		t.Errorf("by id: %v, %s", found, fmt.Sprint(a))
	}
	if snapshot, err = v.WaitFor(testkit.Deadline(t), put("a", true)); err != nil || names(snapshot.PendingApprovals()) != "c" || names(snapshot.Approvals(0, 9)) != "cba" {
		t.Errorf("after a decision: pending %q, all %q, %v", names(snapshot.PendingApprovals()), names(snapshot.Approvals(0, 9)), err)
	}
}
