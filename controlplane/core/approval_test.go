package core_test

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/cellquota/cellquota/controlplane/core"
)

var asked = time.Date(2026, 11, 11, 0, 0, 0, 0, time.UTC)

func pending(t *testing.T) (core.Operation, core.Approval) {
	t.Helper()
	o := core.Operation{ID: "op", Kind: "cancel-campaign", Subject: "c", Actor: "ann", Reason: "wrong price", Step: "cancel"}
	o, a := o.AskApproval(time.Hour, asked)
	if err := errors.Join(o.Check(), a.Check()); err != nil {
		t.Fatal(err)
	}
	if o.State != core.OperationPending || !o.NeedsApproval || o.Detail == "" || a.ID != "op" || a.Requester != "ann" || a.Reason != "wrong price" || !a.ExpiresAt.Equal(asked.Add(time.Hour)) {
		t.Fatalf("asked: %+v, %+v", o, a)
	}
	return o, a
}

// Every cell of the approval's table, by hand: state × (verb, who, when).
func TestApprovalTable(t *testing.T) {
	_, fresh := pending(t)
	approved, err := fresh.Approve("bob", "checked", asked.Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	rejected, err := fresh.Reject("bob", "no", asked.Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	expired := fresh.Expire(asked.Add(time.Hour))
	early, late := asked.Add(time.Hour-1), asked.Add(time.Hour)
	rows := []struct {
		name string
		from core.Approval
		verb string
		who  string
		at   time.Time
		want core.ApprovalState
		err  error
	}{
		{"approve in time", fresh, "approve", "bob", early, core.ApprovalApproved, nil},
		{"approve one's own", fresh, "approve", "ann", early, 0, core.ErrSelfApproval},
		{"approve too late", fresh, "approve", "bob", late, 0, core.ErrApprovalState},
		{"reject in time", fresh, "reject", "bob", early, core.ApprovalRejected, nil},
		{"take back", fresh, "reject", "ann", early, core.ApprovalRejected, nil},
		{"reject late", fresh, "reject", "bob", late, core.ApprovalRejected, nil},
		{"expire early", fresh, "expire", "", early, core.ApprovalPending, nil},
		{"expire", fresh, "expire", "", late, core.ApprovalExpired, nil},
		{"approve again", approved, "approve", "bob", late, core.ApprovalApproved, nil},
		{"approve after another", approved, "approve", "eve", early, 0, core.ErrApprovalState},
		{"approve one's own after another", approved, "approve", "ann", early, 0, core.ErrSelfApproval},
		{"reject what is approved", approved, "reject", "bob", early, 0, core.ErrApprovalState},
		{"expire what is approved", approved, "expire", "", late, core.ApprovalApproved, nil},
		{"approve what is rejected", rejected, "approve", "bob", early, 0, core.ErrApprovalState},
		{"reject again", rejected, "reject", "bob", late, core.ApprovalRejected, nil},
		{"reject after another", rejected, "reject", "eve", early, 0, core.ErrApprovalState},
		{"expire what is rejected", rejected, "expire", "", late, core.ApprovalRejected, nil},
		{"approve what is expired", expired, "approve", "bob", late, 0, core.ErrApprovalState},
		{"reject what is expired", expired, "reject", "bob", late, 0, core.ErrApprovalState},
		{"expire again", expired, "expire", "", late, core.ApprovalExpired, nil},
	}
	for _, r := range rows {
		var got core.Approval
		var err error
		switch r.verb {
		case "approve":
			got, err = r.from.Approve(r.who, "why", r.at)
		case "reject":
			got, err = r.from.Reject(r.who, "why", r.at)
		default:
			got = r.from.Expire(r.at)
		}
		if !errors.Is(err, r.err) || got.State != r.want {
			t.Errorf("%s: %s, %v; want %s, %v", r.name, got.State, err, r.want, r.err)
		}
		if err == nil && got.Check() != nil {
			t.Errorf("%s: %v", r.name, got.Check())
		}
		if r.from.State == r.want && !reflect.DeepEqual(got, r.from) {
			t.Errorf("%s: a repeat changed %+v to %+v", r.name, r.from, got)
		}
	}
	self := fresh
	self.State, self.Approver = core.ApprovalApproved, "ann"
	if err := self.Check(); !errors.Is(err, core.ErrBroken) {
		t.Errorf("a record that the requester approved: %v", err)
	}
}

// Who may step: (needs, finished steps, approval) → clearance.
func TestMayStep(t *testing.T) {
	o, a := pending(t)
	in := func(s core.ApprovalState) core.Approval {
		b := a
		b.State, b.Approver = s, "bob"
		return b
	}
	free, begun := o, o.Finished("one", "", "two", asked)
	free.NeedsApproval = false
	other := in(core.ApprovalApproved)
	other.ID = "another"
	for _, r := range []struct {
		name  string
		op    core.Operation
		a     core.Approval
		found bool
		want  core.Clearance
	}{
		{"needs none", free, core.Approval{}, false, core.MayGo},
		{"not decided", o, a, true, core.MustWait},
		{"approved", o, in(core.ApprovalApproved), true, core.MayGo},
		{"rejected", o, in(core.ApprovalRejected), true, core.MustEnd},
		{"expired", o, in(core.ApprovalExpired), true, core.MustEnd},
		{"no record", o, core.Approval{}, false, core.MustWait},
		{"another's record", o, other, true, core.MustWait},
		{"what it began", begun, core.Approval{}, false, core.MayGo},
	} {
		if got, why := r.op.MayStep(r.a, r.found); got != r.want || (got != core.MayGo && why == "") {
			t.Errorf("%s: %d %q, want %d", r.name, got, why, r.want)
		}
	}
}

// Whoever minted the requester's token is no second person, nor the other way round, nor somebody whose
// token comes from the same hand: one sre with two names is one person.
func TestOneHand(t *testing.T) {
	_, a := pending(t)
	a.RequesterIssuers = []string{"zoe", "root"}
	for _, r := range []struct {
		who     string
		issuers []string
		want    bool
	}{
		{"bob", nil, false},
		{"root", nil, true},
		{"bob", []string{"eve", "ann"}, true},
		{"bob", []string{"zoe"}, true},
		{"bob", []string{"eve", "root"}, true},
		{"bob", []string{"eve", "other root"}, false},
	} {
		if got := a.OneHand(r.who, r.issuers); got != r.want {
			t.Errorf("%s of %v: %v", r.who, r.issuers, got)
		}
	}
}

// Who may abort what: waiting for approval, and every kind before and after its
// first step.
func TestMayAbort(t *testing.T) {
	o, a := pending(t)
	for _, r := range []struct {
		who  string
		any  bool
		want error
	}{{"ann", false, nil}, {"bob", true, nil}, {"bob", false, core.ErrNotRequester}} {
		if err := o.MayAbort(a, true, r.who, r.any); !errors.Is(err, r.want) || (r.want == nil && err != nil) {
			t.Errorf("waiting, by %s (any %v): %v, want %v", r.who, r.any, err, r.want)
		}
	}
	approved, err := a.Approve("bob", "", asked)
	if err != nil {
		t.Fatal(err)
	}
	if err := o.MayAbort(approved, true, "ann", true); !errors.Is(err, core.ErrOperationState) {
		t.Errorf("an approved cancel: %v", err)
	}
	free := map[string]bool{core.OperationPublish: true, core.OperationRebalance: true, core.OperationRecover: true}
	for _, kind := range []string{
		core.OperationPublish, core.OperationFence, core.OperationReclaim, core.OperationRestore, core.OperationCancel,
		core.OperationSetLimit, core.OperationTransfer, core.OperationRebalance, core.OperationRecover, "unheard-of",
	} {
		op := core.Operation{ID: "op", Kind: kind, Subject: "s", State: core.OperationPending}
		if err := op.MayAbort(core.Approval{}, false, "ann", true); (err == nil) != free[kind] || err != nil && !errors.Is(err, core.ErrOperationState) {
			t.Errorf("%s that has done nothing: %v", kind, err)
		}
		if err := op.Finished("one", "", "two", asked).MayAbort(core.Approval{}, false, "ann", true); !errors.Is(err, core.ErrOperationState) {
			t.Errorf("%s after its first step: %v", kind, err)
		}
		if err := op.End(core.OperationDone, "", asked).MayAbort(core.Approval{}, false, "ann", true); !errors.Is(err, core.ErrOperationState) {
			t.Errorf("%s that has ended: %v", kind, err)
		}
	}
	recovery := core.Operation{ID: "op", Kind: core.OperationRecover, Subject: "etcd", Actor: "ann", State: core.OperationRunning}
	for who, want := range map[string]error{"ann": nil, "bob": core.ErrNotRequester} {
		if err := recovery.MayAbort(approved, true, who, false); !errors.Is(err, want) || (want == nil && err != nil) {
			t.Errorf("an approved recovery, by %s: %v, want %v", who, err, want)
		}
	}
}
