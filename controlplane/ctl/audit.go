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

func (c *cli) auditCommand() *cobra.Command {
	return group("audit", "See who did what, and what was refused to whom", "  cellctl audit list --actor ann\n  cellctl audit list --subject 'cell cell-2'",
		c.auditList())
}

func (c *cli) auditList() *cobra.Command {
	var limit int
	var actor, subject string
	cmd := &cobra.Command{
		Use: "list", Short: "List changes and refusals, newest first", Args: takes(),
		Long:    "A change's record was made in its own transaction. Refusals are counted per actor, method and minute\nand appear within a minute. Older records come from the archive.",
		Example: "  cellctl audit list --limit 20\n  cellctl audit list --actor ann -o csv\n  cellctl audit list --subject 'campaign double-eleven'",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 {
				return usage("--limit %d: must be at least 1", limit)
			}
			return c.speak(cmd.Context(), target.Viewer, func(ctx context.Context, cp *client.Client) error {
				all := &pb.ListAuditEventsResponse{}
				for {
					page, err := call(ctx, c, cp.Reports.ListAuditEvents, &pb.ListAuditEventsRequest{
						PageSize: pageSize(limit - len(all.GetEvents())), PageToken: all.GetNextPageToken(), Actor: actor, Subject: subject,
					})
					if err != nil {
						return fmt.Errorf("list the audit: %w", err)
					}
					all.Events, all.NextPageToken = append(all.Events, page.GetEvents()...), page.GetNextPageToken()
					if all.GetNextPageToken() == "" || len(all.GetEvents()) >= limit {
						return c.show(render.View{Message: all, Tables: []render.Table{auditTable(all.GetEvents())}})
					}
				}
			})
		},
	}
	f := cmd.Flags()
	f.IntVar(&limit, "limit", 100, "at most this many")
	f.StringVar(&actor, "actor", "", "only this one's")
	f.StringVar(&subject, "subject", "", "only what is about subjects that begin so, such as 'cell cell-2' or 'book '")
	return cmd
}

func auditTable(events []*pb.AuditEvent) render.Table {
	t := render.Table{Columns: render.Columns("AT", "ACTOR", "METHOD", "SUBJECT", "REASON", "#REFUSED", "+OPERATION")}
	for _, e := range events {
		refused, why := "", e.GetReason()
		if n := e.GetRefusals(); n > 0 {
			refused, why = number(n), e.GetRefusal()
		}
		t.Rows = append(t.Rows, []string{render.Instant(e.GetAt()), e.GetActor(), e.GetMethod(), e.GetSubject(), why, refused, e.GetOperationId()})
	}
	return t
}
