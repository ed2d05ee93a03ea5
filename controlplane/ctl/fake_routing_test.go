package ctl

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

func (f *fake) GetRoute(_ context.Context, in *pb.GetRouteRequest) (*pb.GetRouteResponse, error) {
	ranges := func(from, to int32) *pb.DomainBuckets {
		return &pb.DomainBuckets{Ranges: []*pb.BucketRange{{BucketFrom: from, BucketTo: to}}}
	}
	return &pb.GetRouteResponse{CampaignId: in.GetCampaignId(), RouteVersion: 2, Domains: []*pb.DomainRoute{{
		Cells: []*pb.CellBuckets{{CellId: "cell-1", Buckets: ranges(0, 2047)}, {CellId: "cell-2", Buckets: ranges(2048, 4095)}},
		Moves: []*pb.BucketMove{{FromCell: "cell-1", ToCell: "cell-2", Buckets: ranges(2048, 2559), RouteVersion: 2, State: pb.BucketMoveState_BUCKET_MOVE_STATE_MOVED, OrderedAtMs: 1_800_000_000_000}},
	}}}, nil
}

// HandOverBuckets answers as if cell-1 owned 0-2047 with 31 orders; from cell-3 nothing
// can be counted, and the handover waits.
func (f *fake) HandOverBuckets(_ context.Context, in *pb.HandOverBucketsRequest) (*pb.HandOverBucketsResponse, error) {
	if in.GetExpectedRouteVersion() > 2 {
		return nil, status.Error(codes.Aborted, "the expected version is old")
	}
	out := &pb.HandOverBucketsResponse{
		OperationId: in.GetOperationId(), BucketCount: 2048 - in.GetBucketFrom(), RouteVersion: 2,
		Buckets: &pb.DomainBuckets{Domain: in.GetDomain(), Ranges: []*pb.BucketRange{{BucketFrom: in.GetBucketFrom(), BucketTo: 2047}}},
	}
	buyers := int64(31)
	if in.GetFromCellId() != "cell-3" {
		out.Buyers = &buyers
	}
	if !in.GetValidateOnly() {
		out.Operation = &pb.Operation{OperationId: in.GetOperationId(), Kind: "handover", Subject: in.GetCampaignId(), State: pb.OperationState_OPERATION_STATE_DONE, Steps: []*pb.OperationStep{{Name: "turn", Detail: "the map names cell-2"}}}
	}
	return out, nil
}
