package controlplane

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cellquota/cellquota/controlplane/access"
	"github.com/cellquota/cellquota/controlplane/client"
	"github.com/cellquota/cellquota/internal/testkit"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Two replicas over one etcd: a token that one minted opens the other, and is
// refused there once it was revoked. What was refused is in the audit when the
// replica that refused has stopped, beside what was done.
func TestTokensAndRefusalsOverReplicas(t *testing.T) {
	etcd := testkit.Etcd(t, 1)
	one, _ := replicaFor(t, etcd, operators())
	two, stopTwo := replicaFor(t, etcd, operators())
	ready(t, one)
	ready(t, two)
	ctx := testkit.Deadline(t)
	sre := dial(t, one, client.Options{Token: access.SRE})
	made, err := sre.Access.CreateToken(ctx, &pb.CreateTokenRequest{Name: "bob", Role: access.Viewer, OperationId: "t1", Reason: "on call"})
	if err != nil {
		t.Fatal(err)
	}
	bob := dial(t, two, client.Options{Token: made.GetSecret()})
	testkit.Eventually(t, 20*time.Second, func() error {
		_, err := bob.Reports.GetStatus(ctx, &pb.GetStatusRequest{})
		return err
	})
	for range 3 {
		if _, err := bob.Fences.FenceCell(ctx, &pb.FenceCellRequest{CellId: "cell-1", OperationId: "f", Reason: "curious"}); status.Code(err) != codes.PermissionDenied {
			t.Fatalf("a viewer fences: %v", err)
		}
	}
	if _, err := sre.Access.RevokeToken(ctx, &pb.RevokeTokenRequest{TokenId: made.GetToken().GetTokenId(), OperationId: "t2", Reason: "left"}); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 20*time.Second, func() error {
		if _, err := bob.Reports.GetStatus(ctx, &pb.GetStatusRequest{}); status.Code(err) != codes.Unauthenticated {
			return fmt.Errorf("the other replica still answers a revoked token: %w", err)
		}
		return nil
	})
	if err := stopTwo(); err != nil {
		t.Fatal(err)
	}
	audit, err := sre.Reports.ListAuditEvents(ctx, &pb.ListAuditEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]*pb.AuditEvent{}
	for _, e := range audit.GetEvents() {
		told[e.GetActor()+" "+e.GetMethod()] = e
	}
	if e := told["bob /cellquota.v1.FenceService/FenceCell"]; e.GetRefusals() != 3 || e.GetRefusal() != "PERMISSION_DENIED" {
		t.Errorf("bob's refusals: %v", e)
	}
	if e := told["unauthenticated /cellquota.v1.ReportService/GetStatus"]; e.GetRefusals() < 1 || e.GetRefusal() != "UNAUTHENTICATED" {
		t.Errorf("nobody's refusals: %v", e)
	}
	subject := "token " + made.GetToken().GetTokenId()
	if e := told["sre /cellquota.v1.AccessService/CreateToken"]; e.GetSubject() != subject || e.GetOperationId() != "t1" {
		t.Errorf("the token's making: %v", e)
	}
	if e := told["sre /cellquota.v1.AccessService/RevokeToken"]; e.GetSubject() != subject || e.GetReason() != "left" {
		t.Errorf("the token's end: %v", e)
	}
	page, err := sre.Reports.ListAuditEvents(ctx, &pb.ListAuditEventsRequest{Actor: "bob", PageSize: 1})
	if err != nil || len(page.GetEvents()) != 1 || page.GetEvents()[0].GetActor() != "bob" {
		t.Errorf("of bob: %v, %v", page, err)
	}
}
