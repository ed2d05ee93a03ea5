package store_test

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/testkit"
)

// An operation and its approval are one transaction, and read back as written.
func TestApprovalIsStoredBesideItsOperation(t *testing.T) {
	p := open(t)
	ctx := testkit.Deadline(t)
	if _, err := p.Approval(ctx, "op"); !errors.Is(err, core.ErrUnknownApproval) {
		t.Fatalf("an approval of nobody: %v", err)
	}
	now := time.Date(2026, 11, 11, 0, 0, 0, 0, time.UTC)
	op, asked := core.Operation{ID: "op", Kind: "cancel-campaign", Subject: "c", Actor: "ann", Reason: "why", StartedAt: now}.AskApproval(time.Hour, now)
	asked.RequesterIssuers = []string{"zoe", "root"}
	put := func(a core.Approval) error {
		_, err := p.Update(ctx, "ask", func(tx *store.Tx) error {
			_, _, e1 := tx.Operation("op")
			_, _, e2 := tx.Approval("op")
			return errors.Join(e1, e2, tx.PutOperation(op), tx.PutApproval(a))
		})
		return err
	}
	if err := put(asked); err != nil {
		t.Fatal(err)
	}
	got, err := p.Approval(ctx, "op")
	stored, opErr := p.Operation(ctx, "op")
	if err = errors.Join(err, opErr); err != nil {
		t.Fatal(err)
	}
	if got.CreateRevision == 0 || got.CreateRevision != stored.CreateRevision || !stored.NeedsApproval {
		t.Errorf("approval created at %d, operation at %d, needs approval %v", got.CreateRevision, stored.CreateRevision, stored.NeedsApproval)
	}
	got.CreateRevision, got.ModRevision = 0, 0
	if !reflect.DeepEqual(got, asked) {
		t.Errorf("read %+v, wrote %+v", got, asked)
	}
	decided, err := asked.Approve("bob", "checked", now.Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	if err := put(decided); err != nil {
		t.Fatal(err)
	}
	if got, err := p.Approval(ctx, "op"); err != nil || got.State != core.ApprovalApproved || got.Approver != "bob" || !got.DecidedAt.Equal(now.Add(time.Minute)) || got.DecisionReason != "checked" {
		t.Errorf("decided: %+v, %v", got, err)
	}
	decided.Approver = "ann"
	if err := put(decided); !errors.Is(err, core.ErrBroken) {
		t.Errorf("a record that its requester approved was stored: %v", err)
	}
}
