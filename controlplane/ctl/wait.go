package ctl

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/cellquota/cellquota/controlplane/client"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

func noWaitFlag(cmd *cobra.Command, noWait *bool) {
	cmd.Flags().BoolVar(noWait, "no-wait", false, "return the operation instead of waiting for its end")
}

// wait waits until the operation has ended; errPending past --timeout, errEnded when it ended without
// its effect. The operation as last seen is always answered.
func (c *cli) wait(ctx context.Context, cp *client.Client, op *pb.Operation) (*pb.Operation, error) {
	for !ended(op) {
		out, err := cp.Operations.Wait(ctx, &pb.OperationServiceWaitRequest{OperationId: op.GetOperationId()})
		switch {
		case err == nil:
			op = out.GetOperation()
			continue
		case ctx.Err() != nil, errors.Is(err, rpcstatus.ErrDeadline):
			return c.lastSight(ctx, cp, op)
		case !errors.Is(err, rpcstatus.ErrUnavailable):
			return op, err
		}
		if c.Clock.Sleep(ctx, callPause) != nil { // another replica leads soon
			return c.lastSight(ctx, cp, op)
		}
	}
	if op.GetState() != pb.OperationState_OPERATION_STATE_DONE {
		return op, fmt.Errorf("%s %s: %w: %s", op.GetKind(), op.GetSubject(), errEnded, op.GetDetail())
	}
	return op, nil
}

// lastSight reads the operation once more after the time ran out, to say where it stands.
func (c *cli) lastSight(ctx context.Context, cp *client.Client, op *pb.Operation) (*pb.Operation, error) {
	short, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if out, err := cp.Operations.Get(short, &pb.OperationServiceGetRequest{OperationId: op.GetOperationId()}); err == nil {
		op = out.GetOperation()
	}
	if op.GetState() == pb.OperationState_OPERATION_STATE_DONE {
		return op, nil
	}
	return op, fmt.Errorf("%s %s: operation %s: %w at step %q %s", op.GetKind(), op.GetSubject(), op.GetOperationId(), errPending, op.GetStep(), op.GetDetail())
}

func ended(op *pb.Operation) bool {
	switch op.GetState() {
	case pb.OperationState_OPERATION_STATE_DONE, pb.OperationState_OPERATION_STATE_FAILED, pb.OperationState_OPERATION_STATE_ABORTED:
		return true
	default:
		return false
	}
}
