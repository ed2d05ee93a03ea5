package api

import (
	"context"
	"strconv"

	"github.com/cellquota/cellquota/controlplane/convert"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/intent"
	"github.com/cellquota/cellquota/controlplane/operation"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Operations is OperationService.
type Operations struct {
	pb.UnimplementedOperationServiceServer
	Intent *intent.Service
	Reader operation.Reader
}

// render adds the state of the second person's word.
func (h *Operations) render(op core.Operation) *pb.Operation {
	out := convert.Operation(op)
	if a, asked := h.Reader.Approval(op.ID); asked {
		out.Approval = pb.ApprovalState(a.State)
	}
	return out
}

// List answers a page of operations, newest first; open_only and subject leave
// others out.
func (h *Operations) List(_ context.Context, req *pb.OperationServiceListRequest) (*pb.OperationServiceListResponse, error) {
	var f fields
	size := f.pageSize(req.GetPageSize())
	before, _ := f.before(req.GetPageToken())
	if err := f.err(); err != nil {
		return nil, err
	}
	subject := req.GetSubject()
	operations := newest(before, size+1, h.Reader.List, func(op core.Operation) int64 { return op.CreateRevision }, func(op core.Operation) bool {
		return (!req.GetOpenOnly() || !op.State.Terminal()) && (subject == "" || op.Subject == subject)
	})
	out := &pb.OperationServiceListResponse{}
	for i, op := range operations {
		if i == size {
			out.NextPageToken = pageToken(strconv.FormatInt(operations[i-1].CreateRevision, 10), "0")
			break
		}
		out.Operations = append(out.Operations, h.render(op))
	}
	return out, nil
}

// Get answers one operation.
func (h *Operations) Get(_ context.Context, req *pb.OperationServiceGetRequest) (*pb.OperationServiceGetResponse, error) {
	var f fields
	id := f.operation("operation_id", req.GetOperationId())
	if err := f.err(); err != nil {
		return nil, err
	}
	op, err := h.Reader.Get(id)
	if err != nil {
		return nil, err
	}
	return &pb.OperationServiceGetResponse{Operation: h.render(op)}, nil
}

// Wait answers when the operation has ended.
func (h *Operations) Wait(ctx context.Context, req *pb.OperationServiceWaitRequest) (*pb.OperationServiceWaitResponse, error) {
	var f fields
	id := f.operation("operation_id", req.GetOperationId())
	if err := f.err(); err != nil {
		return nil, err
	}
	op, err := h.Reader.Wait(ctx, id)
	if err != nil {
		return nil, err
	}
	return &pb.OperationServiceWaitResponse{Operation: h.render(op)}, nil
}

// Abort ends an operation that may be ended.
func (h *Operations) Abort(ctx context.Context, req *pb.OperationServiceAbortRequest) (*pb.OperationServiceAbortResponse, error) {
	var f fields
	id, reason := f.operation("operation_id", req.GetOperationId()), f.reason(req.GetReason(), true)
	if err := f.err(); err != nil {
		return nil, err
	}
	op, err := h.Intent.AbortOperation(ctx, caller(ctx), id, reason)
	if err != nil {
		return nil, err
	}
	return &pb.OperationServiceAbortResponse{Operation: h.render(op)}, nil
}
