package api_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cellquota/cellquota/controlplane/access"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/testkit"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

func (r *rig) token(in *pb.CreateTokenRequest) *pb.CreateTokenResponse {
	r.t.Helper()
	out, err := r.as(access.SRE).Access.CreateToken(testkit.Deadline(r.t), in)
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

// A token opens what its role may, until it is revoked; etcd never sees its
// secret, and nobody can read it a second time.
func TestToken(t *testing.T) {
	r := newRig(t)
	ctx := testkit.Deadline(t)
	sre := r.as(access.SRE)
	in := &pb.CreateTokenRequest{Name: "bob", Role: access.Viewer, TtlSeconds: 3_600, OperationId: "t1", Reason: "on call"}
	dry := r.token(&pb.CreateTokenRequest{Name: "bob", Role: access.Viewer, OperationId: "t1", ValidateOnly: true})
	if dry.GetSecret() != "" || len(r.view.Snapshot().Tokens()) != 0 {
		t.Fatalf("a dry run made %v", dry)
	}
	out := r.token(in)
	token, text := out.GetToken(), out.GetSecret()
	if token.GetTokenId() != dry.GetToken().GetTokenId() || token.GetCreatedBy() != "sre-ann" || !strings.HasPrefix(text, "cq_"+token.GetTokenId()+"_") || len(text) < 60 {
		t.Fatalf("created %v, %q", token, text)
	}
	if life := token.GetExpiresAt().AsTime().Sub(token.GetCreatedAt().AsTime()); life != time.Hour {
		t.Errorf("it lives %s", life)
	}
	if _, err := sre.Access.CreateToken(ctx, in); !errors.Is(err, core.ErrTokenExists) || status.Code(rpcstatus.ToStatus(err)) != codes.AlreadyExists {
		t.Errorf("a repeat: %v", err)
	}
	bob := r.as(text)
	if _, err := bob.Operations.List(ctx, &pb.OperationServiceListRequest{}); err != nil {
		t.Errorf("bob reads: %v", err)
	}
	if _, err := bob.Access.ListTokens(ctx, &pb.ListTokensRequest{}); !errors.Is(err, rpcstatus.ErrPermissionDenied) {
		t.Errorf("a viewer lists tokens: %v", err)
	}
	for _, bad := range []string{text[:len(text)-1], text + "x", "cq_" + token.GetTokenId() + "_x", strings.Replace(text, token.GetTokenId(), "aaaaaaaaaaaaaaaa", 1)} {
		if _, err := r.as(bad).Operations.List(ctx, &pb.OperationServiceListRequest{}); !errors.Is(err, rpcstatus.ErrUnauthenticated) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	everything, err := r.etcd.Client(t).Get(ctx, "/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	_, secret, _ := core.SplitToken(text)
	for _, kv := range everything.Kvs {
		if strings.Contains(string(kv.Value)+string(kv.Key), secret) {
			t.Errorf("%s holds the secret", kv.Key)
		}
	}
	if _, err := sre.Access.RevokeToken(ctx, &pb.RevokeTokenRequest{TokenId: token.GetTokenId(), OperationId: "t2"}); !errors.Is(err, rpcstatus.ErrInvalidArgument) {
		t.Errorf("revoked without a reason: %v", err)
	}
	first, err := sre.Access.RevokeToken(ctx, &pb.RevokeTokenRequest{TokenId: token.GetTokenId(), OperationId: "t2", Reason: "left"})
	if err != nil {
		t.Fatal(err)
	}
	again, err := sre.Access.RevokeToken(ctx, &pb.RevokeTokenRequest{TokenId: token.GetTokenId(), OperationId: "t3", Reason: "again"})
	if err != nil || !again.GetToken().GetRevokedAt().AsTime().Equal(first.GetToken().GetRevokedAt().AsTime()) {
		t.Errorf("revoked twice: %v, %v", again, err)
	}
	if _, err := bob.Operations.List(ctx, &pb.OperationServiceListRequest{}); !errors.Is(err, rpcstatus.ErrUnauthenticated) {
		t.Errorf("bob after the revocation: %v", err)
	}
	if _, err := sre.Access.RevokeToken(ctx, &pb.RevokeTokenRequest{TokenId: "nobody", OperationId: "t2", Reason: "x"}); !errors.Is(err, core.ErrUnknownToken) {
		t.Errorf("a token of nobody: %v", err)
	}
}

// A token ends by the replica's clock.
func TestTokenExpires(t *testing.T) {
	r := newRig(t)
	ctx := testkit.Deadline(t)
	text := r.token(&pb.CreateTokenRequest{Name: "bob", Role: access.SRE, TtlSeconds: 60, OperationId: "t1"}).GetSecret()
	if _, err := r.as(text).Access.ListTokens(ctx, &pb.ListTokensRequest{}); err != nil {
		t.Fatal(err)
	}
	r.hands.Advance(time.Minute)
	if _, err := r.as(text).Access.ListTokens(ctx, &pb.ListTokensRequest{}); !errors.Is(err, rpcstatus.ErrUnauthenticated) {
		t.Errorf("after its end: %v", err)
	}
}

// Every fault of a new token is told at once; pages are in order of ids.
func TestTokenFaultsAndPages(t *testing.T) {
	r := newRig(t)
	ctx := testkit.Deadline(t)
	_, err := r.as(access.SRE).Access.CreateToken(ctx, &pb.CreateTokenRequest{Name: "a b", Role: "root", Regions: []string{"East"}, TtlSeconds: 5, OperationId: "x"})
	for _, field := range []string{"name", "role", "regions", "ttl_seconds"} {
		if told := fmt.Sprint(rpcstatus.Violations(err)); !strings.Contains(told, field) {
			t.Errorf("the answer does not name %s: %s", field, told)
		}
	}
	if _, err := r.as(access.SRE).Access.CreateToken(ctx, &pb.CreateTokenRequest{Name: "a", Role: access.RegionOperator, OperationId: "x"}); err == nil || !strings.Contains(err.Error(), "regions") {
		t.Errorf("a region-operator without a region: %v", err)
	}
	for i := range 3 {
		r.token(&pb.CreateTokenRequest{Name: "bob", Role: access.Viewer, OperationId: fmt.Sprint("t", i)})
	}
	seen, token := []string{}, ""
	for range 3 {
		page, err := r.as(access.SRE).Access.ListTokens(ctx, &pb.ListTokensRequest{PageSize: 1, PageToken: token})
		if err != nil || len(page.GetTokens()) != 1 {
			t.Fatalf("page %v, %v", page, err)
		}
		seen, token = append(seen, page.GetTokens()[0].GetTokenId()), page.GetNextPageToken()
	}
	if token != "" || seen[0] >= seen[1] || seen[1] >= seen[2] {
		t.Errorf("pages %v, then %q", seen, token)
	}
}

// ask begins an operation that waits for a second person, in somebody's name.
func (r *rig) ask(id, who string, issuers ...string) {
	r.t.Helper()
	_, err := r.store.Update(testkit.Deadline(r.t), "ask", func(tx *store.Tx) error {
		_, _, e1 := tx.Operation(id)
		_, _, e2 := tx.Approval(id)
		now := r.hands.Now()
		op, a := core.Operation{ID: id, Kind: "cancel-campaign", Subject: "c", Actor: who, Reason: "wrong price", StartedAt: now}.AskApproval(time.Hour, now)
		a.RequesterIssuers = issuers
		return errors.Join(e1, e2, tx.PutOperation(op), tx.PutApproval(a))
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.caughtUp()
}

// Another person than the requester decides, in time, once; the operation shows it.
func TestApprovals(t *testing.T) {
	r := newRig(t)
	ctx := testkit.Deadline(t)
	sre, manager := r.as(access.SRE), r.as(access.CampaignManager)
	for _, id := range []string{"a", "b", "c"} {
		r.ask(id, "campaign-manager-ann")
	}
	if _, err := manager.Access.Approve(ctx, &pb.ApproveRequest{ApprovalId: "a"}); !errors.Is(err, core.ErrSelfApproval) || status.Code(rpcstatus.ToStatus(err)) != codes.PermissionDenied {
		t.Errorf("one's own: %v", err)
	}
	done, err := sre.Access.Approve(ctx, &pb.ApproveRequest{ApprovalId: "a", Reason: "checked"})
	if err != nil || done.GetApproval().GetState() != pb.ApprovalState_APPROVAL_STATE_APPROVED || done.GetApproval().GetApprover() != "sre-ann" {
		t.Fatalf("approved: %v, %v", done, err)
	}
	if again, err := sre.Access.Approve(ctx, &pb.ApproveRequest{ApprovalId: "a", Reason: "again"}); err != nil || again.GetApproval().GetDecisionReason() != "checked" {
		t.Errorf("approved twice: %v, %v", again, err)
	}
	op, err := sre.Operations.Get(ctx, &pb.OperationServiceGetRequest{OperationId: "a"})
	if err != nil || op.GetOperation().GetApproval() != pb.ApprovalState_APPROVAL_STATE_APPROVED || op.GetOperation().GetState() != pb.OperationState_OPERATION_STATE_PENDING {
		t.Errorf("operation a: %v, %v", op, err)
	}
	if _, err := sre.Access.Reject(ctx, &pb.RejectRequest{ApprovalId: "b"}); !errors.Is(err, rpcstatus.ErrInvalidArgument) {
		t.Errorf("rejected without a reason: %v", err)
	}
	if _, err := manager.Access.Reject(ctx, &pb.RejectRequest{ApprovalId: "b", Reason: "mistake"}); err != nil {
		t.Errorf("taken back: %v", err)
	}
	op, err = sre.Operations.Get(ctx, &pb.OperationServiceGetRequest{OperationId: "b"})
	if err != nil || op.GetOperation().GetState() != pb.OperationState_OPERATION_STATE_ABORTED || !strings.Contains(op.GetOperation().GetDetail(), "mistake") {
		t.Errorf("operation b: %v, %v", op, err)
	}
	if _, err := sre.Access.Approve(ctx, &pb.ApproveRequest{ApprovalId: "b"}); !errors.Is(err, core.ErrApprovalState) || status.Code(rpcstatus.ToStatus(err)) != codes.FailedPrecondition {
		t.Errorf("approved what was taken back: %v", err)
	}
	r.hands.Advance(time.Hour)
	if _, err := sre.Access.Approve(ctx, &pb.ApproveRequest{ApprovalId: "c"}); !errors.Is(err, core.ErrApprovalState) || !strings.Contains(err.Error(), "expired") {
		t.Errorf("approved too late: %v", err)
	}
	if _, err := sre.Access.Approve(ctx, &pb.ApproveRequest{ApprovalId: "nobody"}); !errors.Is(err, core.ErrUnknownApproval) {
		t.Errorf("an approval of nobody: %v", err)
	}
	r.listsApprovals(ctx)
}

func (r *rig) listsApprovals(ctx context.Context) {
	r.t.Helper()
	names := func(pending bool, size int32) (out string) {
		token := ""
		for {
			page, err := r.as(access.Viewer).Access.ListApprovals(ctx, &pb.ListApprovalsRequest{PageSize: size, PageToken: token, PendingOnly: pending})
			if err != nil {
				r.t.Fatal(err)
			}
			for _, a := range page.GetApprovals() {
				out += a.GetApprovalId()
			}
			if token = page.GetNextPageToken(); token == "" {
				return out
			}
			out += "|"
		}
	}
	if all, waiting := names(false, 2), names(true, 0); all != "cb|a" || waiting != "c" {
		r.t.Errorf("approvals %q, pending %q", all, waiting)
	}
}

// Whoever mints a token is no second person beside its bearer, whichever of the
// two asks: two tokens of one hand are one hand.
func TestNobodyApprovesThroughAToken(t *testing.T) {
	r := newRig(t)
	ctx := testkit.Deadline(t)
	puppet := r.as(r.token(&pb.CreateTokenRequest{Name: "puppet", Role: access.SRE, OperationId: "t1"}).GetSecret())
	made, err := puppet.Access.CreateToken(ctx, &pb.CreateTokenRequest{Name: "finger", Role: access.SRE, OperationId: "t2"})
	if err != nil {
		t.Fatal(err)
	}
	r.ask("mine", "sre-ann")
	for name, hand := range map[string]string{"puppet": "", "finger": made.GetSecret()} {
		caller := puppet
		if hand != "" {
			caller = r.as(hand)
		}
		if _, err := caller.Access.Approve(ctx, &pb.ApproveRequest{ApprovalId: "mine"}); !errors.Is(err, core.ErrSelfApproval) {
			t.Errorf("%s approves for its maker: %v", name, err)
		}
	}
	r.ask("its", "finger")
	if _, err := r.as(access.SRE).Access.Approve(ctx, &pb.ApproveRequest{ApprovalId: "its"}); !errors.Is(err, core.ErrSelfApproval) {
		t.Errorf("the maker approves what its token asked for: %v", err)
	}
	r.ask("once", "gone", "sre-ann") // its token is deleted since, or not in this replica's view yet
	if _, err := r.as(access.SRE).Access.Approve(ctx, &pb.ApproveRequest{ApprovalId: "once"}); !errors.Is(err, core.ErrSelfApproval) {
		t.Errorf("the maker of a token that is gone approves: %v", err)
	}
	r.ask("twins", "twin", "sre-ann") // one sre minted two tokens, under two names
	if _, err := puppet.Access.Approve(ctx, &pb.ApproveRequest{ApprovalId: "twins"}); !errors.Is(err, core.ErrSelfApproval) {
		t.Errorf("the other token of the same maker approves: %v", err)
	}
	if _, err := r.as(access.CampaignManager).Access.Approve(ctx, &pb.ApproveRequest{ApprovalId: "its"}); err != nil {
		t.Errorf("another person: %v", err)
	}
}

// What waits for approval is aborted by its requester or an sre, and its approval
// ends with it; lists leave out what has ended or is about something else.
func TestAbortWhatWaits(t *testing.T) {
	r := newRig(t)
	ctx := testkit.Deadline(t)
	manager := r.as(access.CampaignManager)
	r.ask("mine", "campaign-manager-ann")
	r.ask("others", "zoe")
	if _, err := manager.Operations.Abort(ctx, &pb.OperationServiceAbortRequest{OperationId: "others", Reason: "x"}); !errors.Is(err, core.ErrNotRequester) {
		t.Errorf("another's: %v", err)
	}
	out, err := manager.Operations.Abort(ctx, &pb.OperationServiceAbortRequest{OperationId: "mine", Reason: "mistake"})
	if err != nil || out.GetOperation().GetState() != pb.OperationState_OPERATION_STATE_ABORTED || out.GetOperation().GetApproval() != pb.ApprovalState_APPROVAL_STATE_REJECTED {
		t.Errorf("one's own: %v, %v", out, err)
	}
	list := func(in *pb.OperationServiceListRequest) (ids string) {
		page, err := manager.Operations.List(ctx, in)
		if err != nil {
			t.Fatal(err)
		}
		for _, op := range page.GetOperations() {
			ids += op.GetOperationId() + " "
		}
		return ids
	}
	if open, about, none := list(&pb.OperationServiceListRequest{OpenOnly: true}), list(&pb.OperationServiceListRequest{Subject: "c"}), list(&pb.OperationServiceListRequest{Subject: "d"}); open != "others " || about != "others mine " || none != "" {
		t.Errorf("open %q, about c %q, about d %q", open, about, none)
	}
	if _, err := r.as(access.SRE).Operations.Abort(ctx, &pb.OperationServiceAbortRequest{OperationId: "others", Reason: "x"}); err != nil {
		t.Errorf("an sre: %v", err)
	}
	if a, _ := r.view.Snapshot().Approval("others"); a.State != core.ApprovalRejected || a.Approver != "sre-ann" {
		t.Errorf("its approval is %s by %s", a.State, a.Approver)
	}
}
