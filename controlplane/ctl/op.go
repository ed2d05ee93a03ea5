package ctl

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cellquota/cellquota/controlplane/client"
	"github.com/cellquota/cellquota/controlplane/ctl/render"
	"github.com/cellquota/cellquota/controlplane/ctl/target"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

func (c *cli) opCommand() *cobra.Command {
	return group("op", "List, wait for and abort long operations", "  cellctl op list\n  cellctl op wait 0190b6a0-…",
		c.opList(), c.opGet(), c.opWait(), c.opAbort())
}

func (c *cli) opList() *cobra.Command {
	var limit int
	var open bool
	var subject string
	cmd := &cobra.Command{
		Use: "list", Short: "List operations, newest first", Args: takes(),
		Example: "  cellctl op list --open\n  cellctl op list --subject cell-2\n  cellctl op list --limit 500 -o csv",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 {
				return usage("--limit %d: must be at least 1", limit)
			}
			return c.speak(cmd.Context(), target.Viewer, func(ctx context.Context, cp *client.Client) error {
				all := &pb.OperationServiceListResponse{}
				for {
					page, err := call(ctx, c, cp.Operations.List, &pb.OperationServiceListRequest{
						PageSize: pageSize(limit - len(all.GetOperations())), PageToken: all.GetNextPageToken(), OpenOnly: open, Subject: subject,
					})
					if err != nil {
						return fmt.Errorf("list operations: %w", err)
					}
					all.Operations, all.NextPageToken = append(all.Operations, page.GetOperations()...), page.GetNextPageToken()
					if all.GetNextPageToken() == "" || len(all.GetOperations()) >= limit {
						return c.show(render.View{Message: all, Tables: []render.Table{opTable(all.GetOperations()...)}})
					}
				}
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 100, "at most this many")
	cmd.Flags().BoolVar(&open, "open", false, "only those that have not ended")
	cmd.Flags().StringVar(&subject, "subject", "", "only those about this cell, campaign or book (CAMPAIGN/SKU)")
	return cmd
}

// pageSize asks for what is still wanted, within the services' bound.
func pageSize(wanted int) int32 { return int32(min(max(wanted, 1), 1000)) }

func (c *cli) opGet() *cobra.Command {
	return &cobra.Command{
		Use: "get ID", Short: "Show one operation with its steps", Args: takes("ID"),
		Example: "  cellctl op get 0190b6a0-…",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.speak(cmd.Context(), target.Viewer, func(ctx context.Context, cp *client.Client) error {
				out, err := call(ctx, c, cp.Operations.Get, &pb.OperationServiceGetRequest{OperationId: args[0]})
				if err != nil {
					return fmt.Errorf("operation %s: %w", args[0], err)
				}
				return c.showMoved(out, out.GetOperation(), "", nil, nil)
			})
		},
	}
}

func (c *cli) opWait() *cobra.Command {
	return &cobra.Command{
		Use: "wait ID", Short: "Wait until an operation has ended; exit 6 past --timeout", Args: takes("ID"),
		Example: "  cellctl op wait 0190b6a0-… --timeout 5m",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.speak(cmd.Context(), target.Viewer, func(ctx context.Context, cp *client.Client) error {
				now, err := call(ctx, c, cp.Operations.Get, &pb.OperationServiceGetRequest{OperationId: args[0]})
				if err != nil {
					return fmt.Errorf("operation %s: %w", args[0], err)
				}
				op, err := c.wait(ctx, cp, now.GetOperation())
				return c.showMoved(&pb.OperationServiceWaitResponse{Operation: op}, op, "", nil, err)
			})
		},
	}
}

func (c *cli) opAbort() *cobra.Command {
	var m mutation
	cmd := &cobra.Command{
		Use: "abort ID", Short: "End an operation that may be ended", Args: takes("ID"),
		Example: "  cellctl op abort 0190b6a0-… --reason 'wrong campaign'",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.speak(cmd.Context(), target.SRE, func(ctx context.Context, cp *client.Client) error {
				out, err := call(ctx, c, cp.Operations.Abort, &pb.OperationServiceAbortRequest{OperationId: args[0], Reason: m.why(cmd)})
				if err != nil {
					return fmt.Errorf("abort %s: %w", args[0], err)
				}
				return c.showMoved(out, out.GetOperation(), "", nil, nil)
			})
		},
	}
	m.reasonFlag(cmd)
	return cmd
}

func opTable(ops ...*pb.Operation) render.Table {
	t := render.Table{Columns: render.Columns("OPERATION", "KIND", "SUBJECT", "STATE", "STEP", "STARTED", "ENDED", "DETAIL", "+APPROVAL", "+ACTOR", "+REASON")}
	for _, o := range ops {
		t.Rows = append(t.Rows, []string{
			o.GetOperationId(), o.GetKind(), o.GetSubject(), render.Word(o.GetState()), o.GetStep(),
			render.Instant(o.GetStartedAt()), render.Instant(o.GetEndedAt()), o.GetDetail(), approvalWord(o), o.GetActor(), o.GetReason(),
		})
	}
	return t
}

func stepTable(o *pb.Operation) render.Table {
	t := render.Table{Columns: render.Columns("STEP", "AT", "WHAT")}
	for _, s := range o.GetSteps() {
		t.Rows = append(t.Rows, []string{s.GetName(), render.Instant(s.GetAt()), s.GetDetail()})
	}
	return t
}

// approvalWord is the state of the second person's word; "" where none is needed.
func approvalWord(o *pb.Operation) string {
	if o.GetApproval() == pb.ApprovalState_APPROVAL_STATE_UNSPECIFIED {
		return ""
	}
	return render.Word(o.GetApproval())
}
