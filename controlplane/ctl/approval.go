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

func (c *cli) approvalCommand() *cobra.Command {
	return group("approval", "Decide what waits for a second person", "  cellctl approval list --pending\n  cellctl approval approve 0190b6a0-… --reason 'checked with the shop'",
		c.approvalList(), c.approvalApprove(), c.approvalReject())
}

func (c *cli) approvalList() *cobra.Command {
	var limit int
	var pending bool
	cmd := &cobra.Command{
		Use: "list", Short: "List approvals, newest first", Args: takes(),
		Example: "  cellctl approval list --pending\n  cellctl approval list --limit 500 -o csv",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 {
				return usage("--limit %d: must be at least 1", limit)
			}
			return c.speak(cmd.Context(), target.Viewer, func(ctx context.Context, cp *client.Client) error {
				all := &pb.ListApprovalsResponse{}
				for {
					page, err := call(ctx, c, cp.Access.ListApprovals, &pb.ListApprovalsRequest{
						PageSize: pageSize(limit - len(all.GetApprovals())), PageToken: all.GetNextPageToken(), PendingOnly: pending,
					})
					if err != nil {
						return fmt.Errorf("list approvals: %w", err)
					}
					all.Approvals, all.NextPageToken = append(all.Approvals, page.GetApprovals()...), page.GetNextPageToken()
					if all.GetNextPageToken() == "" || len(all.GetApprovals()) >= limit {
						return c.show(render.View{Message: all, Tables: []render.Table{approvalTable(all.GetApprovals()...)}})
					}
				}
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 100, "at most this many")
	cmd.Flags().BoolVar(&pending, "pending", false, "only those that nobody has decided")
	return cmd
}

func (c *cli) approvalApprove() *cobra.Command {
	var m mutation
	cmd := &cobra.Command{
		Use: "approve ID", Short: "Let an operation go on that another person asked for", Args: takes("ID"),
		Long:    "ID is the operation's. Whoever asked for the operation may not approve it, nor whoever minted the\ntoken of one of the two.",
		Example: "  cellctl approval approve 0190b6a0-… --reason 'checked with the shop'\n  cellctl approval approve 0190b6a0-… --role campaign-manager",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.confirm(fmt.Sprintf("Let operation %s go on?", args[0])); err != nil {
				return err
			}
			return c.speak(cmd.Context(), target.SRE, func(ctx context.Context, cp *client.Client) error {
				out, err := call(ctx, c, cp.Access.Approve, &pb.ApproveRequest{ApprovalId: args[0], Reason: m.why(cmd)})
				if err != nil {
					return fmt.Errorf("approve %s: %w", args[0], err)
				}
				return c.show(render.View{Message: out, Tables: []render.Table{approvalTable(out.GetApproval())}})
			})
		},
	}
	m.reasonFlag(cmd)
	return cmd
}

func (c *cli) approvalReject() *cobra.Command {
	var m mutation
	cmd := &cobra.Command{
		Use: "reject ID", Short: "Refuse an operation, which ends it; its requester takes it back so", Args: takes("ID"),
		Example: "  cellctl approval reject 0190b6a0-… --reason 'wrong campaign'",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.speak(cmd.Context(), target.SRE, func(ctx context.Context, cp *client.Client) error {
				out, err := call(ctx, c, cp.Access.Reject, &pb.RejectRequest{ApprovalId: args[0], Reason: m.why(cmd)})
				if err != nil {
					return fmt.Errorf("reject %s: %w", args[0], err)
				}
				return c.show(render.View{Message: out, Tables: []render.Table{approvalTable(out.GetApproval())}})
			})
		},
	}
	m.reasonFlag(cmd)
	return cmd
}

func approvalTable(approvals ...*pb.Approval) render.Table {
	t := render.Table{Columns: render.Columns("APPROVAL", "KIND", "SUBJECT", "STATE", "REQUESTER", "CREATED", "EXPIRES", "APPROVER", "REASON", "+DECIDED", "+DECISION")}
	for _, a := range approvals {
		t.Rows = append(t.Rows, []string{
			a.GetApprovalId(), a.GetKind(), a.GetSubject(), render.Word(a.GetState()), a.GetRequester(), render.Instant(a.GetCreatedAt()),
			render.Instant(a.GetExpiresAt()), a.GetApprover(), a.GetReason(), render.Instant(a.GetDecidedAt()), a.GetDecisionReason(),
		})
	}
	return t
}
