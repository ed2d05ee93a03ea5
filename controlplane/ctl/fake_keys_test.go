package ctl

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

func (a accesses) ListKeys(_ context.Context, in *pb.ListKeysRequest) (*pb.ListKeysResponse, error) {
	a.f.note(in)
	return &pb.ListKeysResponse{Keys: []*pb.SigningKey{
		{Info: &pb.KeyInfo{Use: "permit", Kid: "k1", State: "RETIRING", NotBeforeMs: 1764547200000}},
		{Info: &pb.KeyInfo{Use: "permit", Kid: "k2", State: "PENDING"}, MissingAt: []string{"cell/a/1", "cell/b/1", "edge/e1", "edge/e2"}},
		{Info: &pb.KeyInfo{Use: "receipt", Kid: "r1", State: "UNMANAGED"}},
	}}, nil
}

func (a accesses) RotateKey(_ context.Context, in *pb.RotateKeyRequest) (*pb.RotateKeyResponse, error) {
	a.f.note(in)
	if in.GetKid() == "absent" {
		return nil, status.Error(codes.FailedPrecondition, "not everybody has the key: missing_at=edge/e1")
	}
	return &pb.RotateKeyResponse{Key: &pb.SigningKey{Info: &pb.KeyInfo{Use: in.GetUse(), Kid: in.GetKid(), State: "ACTIVE", NotBeforeMs: in.GetNotBefore().AsTime().UnixMilli()}}}, nil
}

func (a accesses) RevokeKey(_ context.Context, in *pb.RevokeKeyRequest) (*pb.RevokeKeyResponse, error) {
	a.f.note(in)
	return &pb.RevokeKeyResponse{Key: &pb.SigningKey{Info: &pb.KeyInfo{Use: in.GetUse(), Kid: in.GetKid(), State: "REVOKED"}}}, nil
}
