package core

import (
	"slices"
	"time"
)

// ApprovalState is where a second person's word on an operation stands.
type ApprovalState uint8

// The states. All but the first are terminal.
const (
	ApprovalPending  ApprovalState = iota + 1 // nobody has decided
	ApprovalApproved                          // the operation may go on
	ApprovalRejected                          // somebody refused it, or took it back
	ApprovalExpired                           // nobody decided in time
)

var approvalStateNames = []string{"", "PENDING", "APPROVED", "REJECTED", "EXPIRED"}

// ApprovalStates lists every state.
func ApprovalStates() []ApprovalState { return all[ApprovalState](approvalStateNames) }

// String is the word of the contract.
func (s ApprovalState) String() string { return enumText("ApprovalState", approvalStateNames, s) }

// Terminal tells whether nothing will change any more.
func (s ApprovalState) Terminal() bool {
	return s >= ApprovalApproved && known(approvalStateNames, s)
}

// DefaultApprovalTTL is how long an approval waits for a decision.
const DefaultApprovalTTL = 24 * time.Hour

// Approval is a second person's word on one operation. Its id is the operation's,
// and it is created in the operation's own transaction. Approve, Reject and
// Expire move it, each copying it; nothing leads out of a decision:
//
//	             Approve            Reject             Expire
//	PENDING      APPROVED (1)(2)    REJECTED           EXPIRED (3)
//	APPROVED     same by the same   refused            stays
//	REJECTED     refused            same by the same   stays
//	EXPIRED      refused            refused            stays
//
// (1) by another person than the requester: ErrSelfApproval. (2) before
// ExpiresAt: ErrApprovalState. (3) at or after ExpiresAt, else it stays. The
// requester may reject: that is taking it back.
type Approval struct {
	ID        string // the operation's
	Kind      string // the operation's
	Subject   string // the operation's
	Requester string
	// RequesterIssuers minted the token that the requester showed, nearest first.
	RequesterIssuers []string
	Reason           string // the requester's
	State            ApprovalState
	CreatedAt        time.Time
	ExpiresAt        time.Time // undecided, it expires then
	// Approver decided at DecidedAt, for DecisionReason; empty before.
	Approver       string
	DecidedAt      time.Time
	DecisionReason string
	// ModRevision and CreateRevision are etcd's; 0: not stored.
	ModRevision, CreateRevision int64
}

// AskApproval makes an operation that is about to be begun wait for a second
// person's word, for ttl (0: DefaultApprovalTTL): the operation and its approval,
// to be put in one transaction.
func (o Operation) AskApproval(ttl time.Duration, now time.Time) (Operation, Approval) {
	if ttl <= 0 {
		ttl = DefaultApprovalTTL
	}
	a := Approval{
		ID: o.ID, Kind: o.Kind, Subject: o.Subject, Requester: o.Actor, Reason: o.Reason,
		State: ApprovalPending, CreatedAt: now, ExpiresAt: now.Add(ttl),
	}
	o.State, o.NeedsApproval = OperationPending, true
	_, o.Detail = o.MayStep(a, true)
	return o, a
}

// Approve lets the operation go on. A repeat by the same person changes nothing.
// ErrSelfApproval for the requester, ErrApprovalState when it was decided
// otherwise or its time is over.
func (a Approval) Approve(who, why string, now time.Time) (Approval, error) {
	switch {
	case who == a.Requester:
		return Approval{}, numbered(ErrSelfApproval, "approval_id", a.ID, "requester", a.Requester)
	case a.State == ApprovalApproved && a.Approver == who:
		return a, nil
	case a.State == ApprovalPending && a.Over(now):
		return Approval{}, a.refuses("it expired at " + a.ExpiresAt.UTC().Format(time.RFC3339))
	}
	return a.decided(ApprovalApproved, who, why, now)
}

// OneHand tells whether the approver and the requester are one person as far as the
// tokens that both showed tell: one of them minted the other's, or somebody minted
// both, at whatever remove. Two people have two origins, each an operator of
// operators_file.
func (a Approval) OneHand(who string, issuers []string) bool {
	requester := append([]string{a.Requester}, a.RequesterIssuers...)
	return slices.ContainsFunc(append([]string{who}, issuers...), func(name string) bool { return slices.Contains(requester, name) })
}

// Reject refuses the operation; the requester may, too. A repeat by the same
// person changes nothing. ErrApprovalState when it was decided otherwise.
func (a Approval) Reject(who, why string, now time.Time) (Approval, error) {
	if a.State == ApprovalRejected && a.Approver == who {
		return a, nil
	}
	return a.decided(ApprovalRejected, who, why, now)
}

// Expire ends an approval that nobody decided in time; any other stays as it is.
func (a Approval) Expire(now time.Time) Approval {
	if a.State == ApprovalPending && a.Over(now) {
		a.State, a.DecidedAt, a.DecisionReason = ApprovalExpired, now, "nobody decided in time"
	}
	return a
}

// Over tells whether the time to decide has passed.
func (a Approval) Over(now time.Time) bool { return !now.Before(a.ExpiresAt) }

func (a Approval) decided(to ApprovalState, who, why string, now time.Time) (Approval, error) {
	if a.State != ApprovalPending {
		return Approval{}, a.refuses("it was decided")
	}
	a.State, a.Approver, a.DecisionReason, a.DecidedAt = to, who, why, now
	return a, nil
}

func (a Approval) refuses(why string) error {
	return numbered(ErrApprovalState, "approval_id", a.ID, "state", a.State, "approver", a.Approver, "why", why)
}

// Check verifies a record that was read or is to be stored. ErrBroken: an
// approved one in particular names another person than the requester.
func (a Approval) Check() error {
	switch {
	case a.ID == "" || a.Kind == "" || a.Requester == "" || !known(approvalStateNames, a.State):
		return broken("approval %q: kind %q, requester %q, state %s", a.ID, a.Kind, a.Requester, a.State)
	case a.State == ApprovalApproved && (a.Approver == "" || a.Approver == a.Requester):
		return broken("approval %s of %s is approved by %q", a.ID, a.Requester, a.Approver)
	}
	return nil
}

// Clearance says whether an operation may take a step now.
type Clearance uint8

// The clearances.
const (
	MayGo    Clearance = iota + 1 // take the step
	MustWait                      // a second person has not decided
	MustEnd                       // refused or too late: the operation ends ABORTED
)

// MayStep decides whether an operation may take its next step, given its approval
// (found tells whether there is one), and says why not. One that needs a word and
// has no approval record waits: the record cannot be read. An operation that has
// finished a step goes on: what it began must be finished.
func (o Operation) MayStep(a Approval, found bool) (Clearance, string) {
	switch {
	case !o.NeedsApproval || len(o.Steps) > 0:
		return MayGo, ""
	case !found || a.ID != o.ID:
		return MustWait, "its approval cannot be read"
	case a.State == ApprovalApproved:
		return MayGo, ""
	case a.State == ApprovalRejected:
		return MustEnd, "rejected by " + a.Approver + ": " + a.DecisionReason
	case a.State == ApprovalExpired:
		return MustEnd, "its approval expired at " + a.ExpiresAt.UTC().Format(time.RFC3339)
	default:
		return MustWait, "waits for a second person's approval until " + a.ExpiresAt.UTC().Format(time.RFC3339)
	}
}
