package ctl

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// accesses is AccessService; the approval "mine" was asked for by the caller.
type accesses struct {
	pb.UnimplementedAccessServiceServer
	f *fake
}

func (a accesses) ListApprovals(_ context.Context, in *pb.ListApprovalsRequest) (*pb.ListApprovalsResponse, error) {
	a.f.note(in)
	out := &pb.ListApprovalsResponse{Approvals: []*pb.Approval{{ApprovalId: "op-9", Kind: "cancel-campaign", Subject: "demo", Requester: "zoe", State: pb.ApprovalState_APPROVAL_STATE_PENDING}}}
	if !in.GetPendingOnly() {
		out.Approvals = append(out.Approvals, &pb.Approval{ApprovalId: "op-8", Kind: "cancel-campaign", Requester: "zoe", Approver: "ann", State: pb.ApprovalState_APPROVAL_STATE_APPROVED})
	}
	return out, nil
}

func (a accesses) Approve(_ context.Context, in *pb.ApproveRequest) (*pb.ApproveResponse, error) {
	a.f.note(in)
	if in.GetApprovalId() == "mine" {
		return nil, status.Error(codes.PermissionDenied, "who asked for it may not approve it")
	}
	return &pb.ApproveResponse{Approval: &pb.Approval{ApprovalId: in.GetApprovalId(), State: pb.ApprovalState_APPROVAL_STATE_APPROVED}}, nil
}

func (a accesses) Reject(_ context.Context, in *pb.RejectRequest) (*pb.RejectResponse, error) {
	a.f.note(in)
	return &pb.RejectResponse{Approval: &pb.Approval{ApprovalId: in.GetApprovalId(), State: pb.ApprovalState_APPROVAL_STATE_REJECTED, DecisionReason: in.GetReason()}}, nil
}

func (a accesses) CreateToken(_ context.Context, in *pb.CreateTokenRequest) (*pb.CreateTokenResponse, error) {
	a.f.note(in)
	if in.GetOperationId() == "again" {
		return nil, status.Error(codes.AlreadyExists, "the token exists, and its secret is not shown twice")
	}
	out := &pb.CreateTokenResponse{Token: &pb.Token{TokenId: "k3v2", Name: in.GetName(), Role: in.GetRole(), Regions: in.GetRegions()}}
	if !in.GetValidateOnly() {
		out.Secret = fmt.Sprintf("cq_k3v2_life%d", in.GetTtlSeconds())
	}
	return out, nil
}

func (a accesses) ListTokens(_ context.Context, in *pb.ListTokensRequest) (*pb.ListTokensResponse, error) {
	a.f.note(in)
	if in.GetPageToken() == "" {
		return &pb.ListTokensResponse{Tokens: []*pb.Token{{TokenId: "k3v2", Name: "ann", Role: "sre"}}, NextPageToken: "more"}, nil
	}
	return &pb.ListTokensResponse{Tokens: []*pb.Token{{TokenId: "z9", Name: "bob", Role: "viewer"}}}, nil
}

func (a accesses) RevokeToken(_ context.Context, in *pb.RevokeTokenRequest) (*pb.RevokeTokenResponse, error) {
	a.f.note(in)
	return &pb.RevokeTokenResponse{Token: &pb.Token{TokenId: in.GetTokenId(), Name: "ann"}}, nil
}

func (f *fake) ListAuditEvents(_ context.Context, in *pb.ListAuditEventsRequest) (*pb.ListAuditEventsResponse, error) {
	f.note(in)
	if in.GetActor() == "eve" {
		return &pb.ListAuditEventsResponse{Events: []*pb.AuditEvent{{Actor: "eve", Method: "/m/FenceCell", Refusals: 7, Refusal: "PERMISSION_DENIED"}}}, nil
	}
	if in.GetPageToken() == "" { // a short page that goes on
		return &pb.ListAuditEventsResponse{NextPageToken: "more"}, nil
	}
	return &pb.ListAuditEventsResponse{Events: []*pb.AuditEvent{{Actor: "ann", Method: "/m/TopUp", Subject: "book demo/phone-x", Reason: "hot"}}}, nil
}
