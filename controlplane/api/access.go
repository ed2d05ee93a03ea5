package api

import (
	"context"
	"strconv"
	"time"

	"github.com/cellquota/cellquota/controlplane/access"
	"github.com/cellquota/cellquota/controlplane/convert"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/intent"
	"github.com/cellquota/cellquota/controlplane/view"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Access is AccessService.
type Access struct {
	pb.UnimplementedAccessServiceServer
	Intent *intent.Service
	View   *view.View
	// Routes, Cells and Peers know who has which signing keys; nil: nobody of theirs.
	Routes *Routes
	Cells  CellKeys
	Peers  Peers
}

// CreateToken mints a token; its text is in this answer only.
func (h *Access) CreateToken(ctx context.Context, req *pb.CreateTokenRequest) (*pb.CreateTokenResponse, error) {
	var f fields
	in := intent.NewToken{
		Name: req.GetName(), Role: req.GetRole(), Regions: req.GetRegions(), TTL: f.tokenTTL(req.GetTtlSeconds()),
		OperationID: f.operation("operation_id", req.GetOperationId()), Reason: f.reason(req.GetReason(), false),
		Roles: access.Roles(), Bound: access.RegionOperator,
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	token, text, err := h.Intent.CreateToken(ctx, caller(ctx), in, req.GetValidateOnly())
	if err != nil {
		return nil, err
	}
	return &pb.CreateTokenResponse{Token: convert.Token(token), Secret: text, OperationId: in.OperationID}, nil
}

// tokenTTL reads a life in seconds; 0 stays 0.
func (f *fields) tokenTTL(seconds int64) time.Duration {
	if seconds < 0 || seconds > int64(core.MaxTokenTTL/time.Second) {
		f.add("ttl_seconds", "must be from 60 to 31622400, or 0 for 30 days")
		return 0
	}
	return time.Duration(seconds) * time.Second
}

// ListTokens answers a page of tokens in order of ids.
func (h *Access) ListTokens(_ context.Context, req *pb.ListTokensRequest) (*pb.ListTokensResponse, error) {
	var f fields
	size, after := f.pageSize(req.GetPageSize()), f.after(req.GetPageToken())
	if err := f.err(); err != nil {
		return nil, err
	}
	tokens, next := page(h.View.Snapshot().Tokens(), func(t core.Token) string { return t.ID }, after, size)
	out := &pb.ListTokensResponse{NextPageToken: next}
	for _, t := range tokens {
		out.Tokens = append(out.Tokens, convert.Token(t))
	}
	return out, nil
}

// RevokeToken ends a token.
func (h *Access) RevokeToken(ctx context.Context, req *pb.RevokeTokenRequest) (*pb.RevokeTokenResponse, error) {
	var f fields
	id, operation := f.operation("token_id", req.GetTokenId()), f.operation("operation_id", req.GetOperationId())
	reason := f.reason(req.GetReason(), true)
	if err := f.err(); err != nil {
		return nil, err
	}
	token, err := h.Intent.RevokeToken(ctx, caller(ctx), id, operation, reason, req.GetValidateOnly())
	if err != nil {
		return nil, err
	}
	return &pb.RevokeTokenResponse{Token: convert.Token(token), OperationId: operation}, nil
}

// ListApprovals answers a page of approvals, newest first.
func (h *Access) ListApprovals(_ context.Context, req *pb.ListApprovalsRequest) (*pb.ListApprovalsResponse, error) {
	var f fields
	size := f.pageSize(req.GetPageSize())
	before, _ := f.before(req.GetPageToken())
	if err := f.err(); err != nil {
		return nil, err
	}
	s := h.View.Snapshot()
	approvals := newest(before, size+1,
		func(before int64, bound int) []core.Approval { return s.Approvals(before, bound) },
		func(a core.Approval) int64 { return a.CreateRevision },
		func(a core.Approval) bool { return !req.GetPendingOnly() || !a.State.Terminal() })
	out := &pb.ListApprovalsResponse{}
	for i, a := range approvals {
		if i == size {
			out.NextPageToken = pageToken(strconv.FormatInt(approvals[i-1].CreateRevision, 10), "0")
			break
		}
		out.Approvals = append(out.Approvals, convert.Approval(a))
	}
	return out, nil
}

// newest gathers at most bound of the records begun before a revision that a
// filter wants, newest first, page by page of what the view has.
func newest[T any](before int64, bound int, list func(before int64, bound int) []T, revision func(T) int64, wants func(T) bool) (out []T) {
	for {
		some := list(before, maxPage)
		for _, v := range some {
			if wants(v) {
				out = append(out, v)
			}
			if len(out) == bound {
				return out
			}
		}
		if len(some) < maxPage {
			return out
		}
		before = revision(some[len(some)-1])
	}
}

// Approve lets an operation go on.
func (h *Access) Approve(ctx context.Context, req *pb.ApproveRequest) (*pb.ApproveResponse, error) {
	var f fields
	id, reason := f.operation("approval_id", req.GetApprovalId()), f.reason(req.GetReason(), false)
	if err := f.err(); err != nil {
		return nil, err
	}
	approval, err := h.Intent.Approve(ctx, caller(ctx), id, reason)
	if err != nil {
		return nil, err
	}
	return &pb.ApproveResponse{Approval: convert.Approval(approval), OperationId: id}, nil
}

// Reject refuses an operation, which ends it.
func (h *Access) Reject(ctx context.Context, req *pb.RejectRequest) (*pb.RejectResponse, error) {
	var f fields
	id, reason := f.operation("approval_id", req.GetApprovalId()), f.reason(req.GetReason(), true)
	if err := f.err(); err != nil {
		return nil, err
	}
	approval, err := h.Intent.Reject(ctx, caller(ctx), id, reason)
	if err != nil {
		return nil, err
	}
	return &pb.RejectResponse{Approval: convert.Approval(approval), OperationId: id}, nil
}
