package convert

import (
	"github.com/cellquota/cellquota/controlplane/core"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Approval gives an approval for the wire.
func Approval(a core.Approval) *pb.Approval {
	return &pb.Approval{
		ApprovalId: a.ID, Kind: a.Kind, Subject: a.Subject, Requester: a.Requester, RequesterIssuers: a.RequesterIssuers, Reason: a.Reason, State: pb.ApprovalState(a.State),
		CreatedAt: Time(a.CreatedAt), ExpiresAt: Time(a.ExpiresAt), Approver: a.Approver, DecidedAt: Time(a.DecidedAt), DecisionReason: a.DecisionReason,
	}
}

// FromApproval reads an approval.
func FromApproval(p *pb.Approval) core.Approval {
	return core.Approval{
		ID: p.GetApprovalId(), Kind: p.GetKind(), Subject: p.GetSubject(), Requester: p.GetRequester(), RequesterIssuers: p.GetRequesterIssuers(), Reason: p.GetReason(), State: enum[core.ApprovalState](p.GetState()),
		CreatedAt: FromTime(p.GetCreatedAt()), ExpiresAt: FromTime(p.GetExpiresAt()), Approver: p.GetApprover(), DecidedAt: FromTime(p.GetDecidedAt()), DecisionReason: p.GetDecisionReason(),
	}
}

// Token gives a token for the wire; its digest stays here.
func Token(t core.Token) *pb.Token {
	return &pb.Token{
		TokenId: t.ID, Name: t.Name, Role: t.Role, Regions: t.Regions, CreatedBy: t.CreatedBy,
		CreatedAt: Time(t.CreatedAt), ExpiresAt: Time(t.ExpiresAt), RevokedAt: Time(t.RevokedAt),
	}
}

// FromToken reads what a token has on the wire; the store adds the rest.
func FromToken(p *pb.Token) core.Token {
	return core.Token{
		ID: p.GetTokenId(), Name: p.GetName(), Role: p.GetRole(), Regions: p.GetRegions(), CreatedBy: p.GetCreatedBy(),
		CreatedAt: FromTime(p.GetCreatedAt()), ExpiresAt: FromTime(p.GetExpiresAt()), RevokedAt: FromTime(p.GetRevokedAt()),
	}
}

// Audit gives a record of the audit for the wire.
func Audit(a core.Audit) *pb.AuditEvent {
	return &pb.AuditEvent{
		At: Time(a.At), Actor: a.Actor, Method: a.Method, OperationId: a.OperationID, Subject: a.Subject, Reason: a.Reason,
		Refusals: a.Refusals, Refusal: a.Refusal,
	}
}

// FromAudit reads a record of the audit.
func FromAudit(p *pb.AuditEvent) core.Audit {
	return core.Audit{
		At: FromTime(p.GetAt()), Actor: p.GetActor(), Method: p.GetMethod(), OperationID: p.GetOperationId(), Subject: p.GetSubject(), Reason: p.GetReason(),
		Refusals: p.GetRefusals(), Refusal: p.GetRefusal(),
	}
}
