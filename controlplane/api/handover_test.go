package api_test

import (
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cellquota/cellquota/controlplane/access"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/testkit"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Each refusal has its code and its reason, and changes nothing; a dry run tells which
// buckets would move and how many orders they bring.
func TestHandOverBuckets(t *testing.T) {
	p := newPlant(t)
	ctx, sre := testkit.Deadline(t), p.as(access.SRE)
	good := func() *pb.HandOverBucketsRequest {
		return &pb.HandOverBucketsRequest{OperationId: "h", CampaignId: "c", FromCellId: "cell-1", ToCellId: "cell-2", BucketFrom: 1024, BucketTo: 4095, Reason: "r"}
	}
	for _, c := range []struct {
		name   string
		edit   func(*pb.HandOverBucketsRequest)
		code   codes.Code
		reason string
	}{
		{"unknown campaign", func(r *pb.HandOverBucketsRequest) { r.CampaignId = "d" }, codes.NotFound, "UNKNOWN_CAMPAIGN"},
		{"unknown taker", func(r *pb.HandOverBucketsRequest) { r.ToCellId = "cell-9" }, codes.NotFound, "UNKNOWN_CELL"},
		{"unknown domain", func(r *pb.HandOverBucketsRequest) { r.Domain = "west" }, codes.NotFound, "UNKNOWN_DOMAIN"},
		{"another's buckets", func(r *pb.HandOverBucketsRequest) { r.BucketFrom = 2048 }, codes.FailedPrecondition, "NOTHING_TO_MOVE"},
		{"stale version", func(r *pb.HandOverBucketsRequest) { r.ExpectedRouteVersion = 9 }, codes.Aborted, "VERSION_CONFLICT"},
		{"to itself", func(r *pb.HandOverBucketsRequest) { r.ToCellId = "cell-1" }, codes.InvalidArgument, "INVALID_ARGUMENT"},
		{"backwards", func(r *pb.HandOverBucketsRequest) { r.BucketTo = 9 }, codes.InvalidArgument, "INVALID_ARGUMENT"},
		{"outside", func(r *pb.HandOverBucketsRequest) { r.BucketTo = 4096 }, codes.InvalidArgument, "INVALID_ARGUMENT"},
		{"negative", func(r *pb.HandOverBucketsRequest) { r.BucketFrom = -1 }, codes.InvalidArgument, "INVALID_ARGUMENT"},
		{"no reason", func(r *pb.HandOverBucketsRequest) { r.Reason = "" }, codes.InvalidArgument, "INVALID_ARGUMENT"},
	} {
		req := good()
		c.edit(req)
		if _, err := sre.Routing.HandOverBuckets(ctx, req); status.Code(err) != c.code || rpcstatus.Reason(err) != c.reason {
			t.Errorf("%s: %v (%s)", c.name, err, rpcstatus.Reason(err))
		}
	}
	want := int64(0)
	for n := range 20 {
		user := fmt.Sprint("u", n)
		p.exec("cell-1", "SELECT sale.sell(1, 's', $1)", user)
		if bucket := ids.Bucket(ids.UserID(user)); bucket >= 1024 && bucket <= 2047 {
			want++
		}
	}
	dry := good()
	dry.ValidateOnly, dry.OperationId = true, ""
	preview, err := sre.Routing.HandOverBuckets(ctx, dry)
	if err != nil || preview.GetOperation() != nil || preview.GetBucketCount() != 1024 || preview.Buyers == nil || preview.GetBuyers() != want || want == 0 {
		t.Fatalf("%v, %v; want %d buyers", preview, err, want)
	}
	p.unreachable("cell-1")
	if preview, err := sre.Routing.HandOverBuckets(ctx, dry); err != nil || preview.Buyers != nil {
		t.Errorf("of a shard that does not answer: %v, %v", preview, err)
	}
	if out, err := sre.Routing.HandOverBuckets(ctx, good()); err != nil || out.GetOperation().GetKind() != core.OperationHandOver || out.GetRouteVersion() != 1 {
		t.Fatalf("%v, %v", out, err)
	}
	if route, err := p.as(access.Viewer).Routing.GetRoute(ctx, &pb.GetRouteRequest{CampaignId: "c"}); err != nil || route.GetRouteVersion() != 1 || len(route.GetDomains()[0].GetCells()) != 2 {
		t.Errorf("%v, %v", route, err)
	}
	if _, err := sre.Routing.GetRoute(ctx, &pb.GetRouteRequest{CampaignId: "d"}); status.Code(err) != codes.NotFound {
		t.Error(err)
	}
}
