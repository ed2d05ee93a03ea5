package ctl

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cellquota/cellquota/controlplane/client"
	"github.com/cellquota/cellquota/controlplane/ctl/render"
	"github.com/cellquota/cellquota/controlplane/ctl/target"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

func (c *cli) reconcileCommand() *cobra.Command {
	return group("reconcile", "Show and repair differences between the ledgers of cells", "  cellctl reconcile list\n  cellctl reconcile run --campaign double-eleven",
		c.reconcileList(), c.reconcileShow(), c.reconcileRun(), c.reconcileRepair())
}

// findingFilter are the flags of a list.
type findingFilter struct {
	cell, campaign, sku, state string
	all                        bool
	limit                      int
}

var findingStates = []string{"OPEN", "PROPOSED", "REPAIRED", "MANUAL_REVIEW"}

func (c *cli) reconcileList() *cobra.Command {
	var in findingFilter
	cmd := &cobra.Command{
		Use: "list", Short: "List what differs, by name", Args: takes(),
		Long: "Findings come from the shards themselves, also when a cell's processes are dead; a shard that does not\n" +
			"answer is named, and the exit code is 6. State: OPEN is repaired by the cell, PROPOSED waits for\n" +
			"cellctl reconcile repair, MANUAL_REVIEW is left by it alone. ACTION is what will happen, or is proposed.",
		Example: "  cellctl reconcile list\n  cellctl reconcile list --state MANUAL_REVIEW -o wide\n  cellctl reconcile list --campaign double-eleven --all -o csv",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if in.limit < 1 {
				return usage("--limit %d: must be at least 1", in.limit)
			}
			state := pb.FindingState(pb.FindingState_value["FINDING_STATE_"+in.state])
			if in.state != "" && state == pb.FindingState_FINDING_STATE_UNSPECIFIED {
				return usage("--state %q: must be one of %s", in.state, strings.Join(findingStates, ", "))
			}
			return c.speak(cmd.Context(), target.Viewer, func(ctx context.Context, cp *client.Client) error {
				all := &pb.ListFindingsResponse{}
				for {
					page, err := call(ctx, c, cp.Reconcile.ListFindings, &pb.ListFindingsRequest{
						CellId: in.cell, CampaignId: in.campaign, SkuId: in.sku, State: state, All: in.all,
						PageSize: pageSize(in.limit - len(all.GetFindings())), PageToken: all.GetNextPageToken(),
					})
					if err != nil {
						return fmt.Errorf("list findings: %w", err)
					}
					all.Findings, all.NextPageToken = append(all.Findings, page.GetFindings()...), page.GetNextPageToken()
					all.Unread = append(all.Unread, page.GetUnread()...)
					all.Frozen = append(all.Frozen, page.GetFrozen()...)
					if all.GetNextPageToken() == "" || len(all.GetFindings()) >= in.limit {
						break
					}
				}
				if err := c.show(findingsView(all)); err != nil {
					return err
				}
				if len(all.GetUnread()) > 0 {
					return fmt.Errorf("%w: %d shards do not answer", errUnchecked, len(all.GetUnread()))
				}
				return nil
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&in.cell, "cell", "", "of this cell only")
	f.StringVar(&in.campaign, "campaign", "", "of this campaign only")
	f.StringVar(&in.sku, "sku", "", "of this SKU only")
	f.StringVar(&in.state, "state", "", "in this state only: "+strings.Join(findingStates, ", "))
	f.BoolVar(&in.all, "all", false, "repaired ones too")
	f.IntVar(&in.limit, "limit", 1000, "at most this many")
	fixed(cmd, "state", findingStates...)
	return cmd
}

func findingsView(out *pb.ListFindingsResponse) render.View {
	v := render.View{Message: out, Tables: []render.Table{findingTable(out.GetFindings()...)}}
	for _, z := range out.GetFrozen() {
		v.Lines = append(v.Lines, fmt.Sprintf("frozen  %s %s in %s: nothing moves its units by itself while %s is open (%d such)", z.GetCampaignId(), z.GetSkuId(), z.GetCellId(), z.GetFindingId(), z.GetFindings()))
	}
	for _, u := range out.GetUnread() {
		v.Lines = append(v.Lines, fmt.Sprintf("unread  %s: %s", u.GetCellId(), u.GetDetail()))
	}
	return v
}

func findingTable(list ...*pb.Finding) render.Table {
	t := render.Table{Columns: render.Columns("FINDING", "KIND", "CAMPAIGN", "SKU", "REQUEST", "#UNITS", "#AGE_S", "STATE", "ACTION", "OWNER", "CELL", "+RESERVATION", "+ORDER", "+EVENT", "+TRIES", "+DETAIL")}
	for _, f := range list {
		t.Rows = append(t.Rows, []string{
			f.GetFindingId(), render.Word(f.GetKind()), f.GetCampaignId(), f.GetSkuId(), f.GetRequestId(), count(f.GetUnits()), strconv.FormatInt(f.GetAgeSeconds(), 10),
			render.Word(f.GetState()), f.GetAction(), f.GetOwner(), f.GetCellId(), f.GetReservationId(), f.GetOrderId(), f.GetEventId(), count(f.GetTries()), f.GetDetail(),
		})
	}
	return t
}

func (c *cli) reconcileShow() *cobra.Command {
	return &cobra.Command{
		Use: "show FINDING", Short: "Show one finding, its scene and what was done about it", Args: takes("FINDING"),
		Example: "  cellctl reconcile show cell-1.f…\n  cellctl reconcile show cell-1.f… -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.speak(cmd.Context(), target.Viewer, func(ctx context.Context, cp *client.Client) error {
				out, err := call(ctx, c, cp.Reconcile.GetFinding, &pb.GetFindingRequest{FindingId: args[0]})
				if err != nil {
					return fmt.Errorf("finding %s: %w", args[0], err)
				}
				v := render.View{Message: out, Tables: []render.Table{findingTable(out.GetFinding())}, Lines: []string{out.GetFinding().GetDetail()}}
				if out.GetSnapshot() != "" {
					v.Lines = append(v.Lines, "scene  "+out.GetSnapshot())
				}
				if len(out.GetRepairs()) > 0 {
					t := render.Table{Columns: render.Columns("AT", "ACTION", "OUTCOME", "BY", "REASON", "INCIDENT", "APPROVER", "DETAIL")}
					for _, r := range out.GetRepairs() {
						t.Rows = append(t.Rows, []string{render.Instant(r.GetAt()), r.GetAction(), r.GetOutcome(), r.GetActor(), r.GetReason(), r.GetIncident(), r.GetApprover(), r.GetDetail()})
					}
					v.Tables = append(v.Tables, t)
				}
				return c.show(v)
			})
		},
	}
}

// runPause is the time between two questions how far a run is.
const runPause = 200 * time.Millisecond

func (c *cli) reconcileRun() *cobra.Command {
	var m mutation
	var cell, campaign string
	cmd := &cobra.Command{
		Use: "run", Short: "Compare the ledgers in full, and wait for the end", Args: takes(),
		Long: "Asks the cells for one comparison of everything at full speed and waits until each has ended; the same\n" +
			"--operation-id asks for nothing again. Exit code 6 when a cell could not be asked or compared, or is not\n" +
			"done within --timeout. cellctl reconcile list shows what was found.",
		Example: "  cellctl reconcile run --timeout 2m\n  cellctl reconcile run --cell cell-1 --campaign double-eleven",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := m.begin(c); err != nil {
				return err
			}
			return c.speak(cmd.Context(), target.SRE, func(ctx context.Context, cp *client.Client) error {
				in := &pb.RunReconcileRequest{OperationId: m.operationID, CellId: cell, CampaignId: campaign, Reason: m.why(cmd), ValidateOnly: m.dryRun}
				out, err := c.waitRun(ctx, cp, in)
				if err != nil {
					return fmt.Errorf("reconcile: %w", err)
				}
				return c.shownRun(out)
			})
		},
	}
	m.flags(cmd)
	m.reasonFlag(cmd)
	cmd.Flags().StringVar(&cell, "cell", "", "this cell only")
	cmd.Flags().StringVar(&campaign, "campaign", "", "this campaign only")
	return cmd
}

// waitRun asks until every run has ended, or the time is over; the last answer counts.
func (c *cli) waitRun(ctx context.Context, cp *client.Client, in *pb.RunReconcileRequest) (*pb.RunReconcileResponse, error) {
	for {
		out, err := call(ctx, c, cp.Reconcile.RunReconcile, in)
		if err != nil || out.GetDone() {
			return out, err
		}
		silent := slices.ContainsFunc(out.GetRuns(), func(r *pb.ReconcileRun) bool { return r.GetEndedAt() == nil && r.GetDetail() == "" })
		if !silent {
			return out, nil // what is left could not be asked
		}
		if err := c.Clock.Sleep(ctx, runPause); err != nil {
			return out, nil //nolint:nilerr // the time is over: the last answer tells how far it is
		}
	}
}

func (c *cli) shownRun(out *pb.RunReconcileResponse) error {
	t := render.Table{Columns: render.Columns("CELL", "STARTED", "ENDED", "#REQUESTS", "#FOUND", "DETAIL")}
	left := 0
	for _, r := range out.GetRuns() {
		t.Rows = append(t.Rows, []string{r.GetCellId(), render.Instant(r.GetStartedAt()), render.Instant(r.GetEndedAt()), strconv.FormatInt(r.GetRequests(), 10), count(r.GetFound()), r.GetDetail()})
		if !out.GetDone() && r.GetEndedAt() == nil || r.GetDetail() != "" {
			left++
		}
	}
	if err := c.show(render.View{Message: out, Tables: []render.Table{t}}); err != nil {
		return err
	}
	if left > 0 {
		return fmt.Errorf("%w: %d cells are not compared in full", errUnchecked, left)
	}
	return nil
}

// findingWords counts the open findings of the status.
func findingWords(out *pb.ListFindingsResponse, err error) string {
	if err != nil {
		return "unknown: " + err.Error()
	}
	text := strconv.Itoa(len(out.GetFindings()))
	if out.GetNextPageToken() != "" {
		text = "more than " + text
	}
	review := 0
	for _, f := range out.GetFindings() {
		if f.GetState() == pb.FindingState_FINDING_STATE_MANUAL_REVIEW {
			review++
		}
	}
	text += fmt.Sprintf(" open, %d in MANUAL_REVIEW, %d frozen SKUs", review, len(out.GetFrozen()))
	for _, u := range out.GetUnread() {
		text += "; " + u.GetCellId() + " does not answer"
	}
	return text
}

var repairActions = []string{"republish", "return", "tombstone", "reverse", "release"}

func (c *cli) reconcileRepair() *cobra.Command {
	var m mutation
	var action, incident, owner string
	cmd := &cobra.Command{
		Use: "repair FINDING --action ACTION", Short: "Repair a finding by added rows, or assign it", Args: takes("FINDING"),
		Long: "republish sends the event, or the effects of its outcome, once more under the original ids; return gives the\n" +
			"units back to the mirror by reservation id; tombstone records that the event will never be an order;\n" +
			"release gives up a place or a reservation that nothing stands behind, or ends a MANUAL_REVIEW; reverse adds\n" +
			"the opposite of a ledger entry, and needs --incident and a second person (cellctl approval approve ID). A\n" +
			"repeat changes nothing. Where the ledgers agree by now the finding is closed, whatever the action.",
		Example: "  cellctl reconcile repair cell-1.f… --action tombstone --reason 'message lost with the disk' --dry-run\n  cellctl reconcile repair cell-1.f… --action reverse --incident INC-4711 --reason 'entry written twice'\n  cellctl reconcile repair cell-1.f… --owner maria --reason 'looks after it'",
		RunE: func(cmd *cobra.Command, args []string) error {
			if action != "" && !slices.Contains(repairActions, action) || action == "" && owner == "" {
				return usage("--action %q: must be one of %s", action, strings.Join(repairActions, ", "))
			}
			if err := m.begin(c); err != nil {
				return err
			}
			return c.speak(cmd.Context(), target.SRE, func(ctx context.Context, cp *client.Client) error {
				out, err := call(ctx, c, cp.Reconcile.RepairFinding, &pb.RepairFindingRequest{
					FindingId: args[0], Action: pb.RepairAction(pb.RepairAction_value["REPAIR_ACTION_"+strings.ToUpper(action)]), OperationId: m.operationID,
					Reason: m.why(cmd), Incident: incident, ValidateOnly: m.dryRun, Owner: owner,
				})
				if err != nil {
					return fmt.Errorf("repair %s: %w", args[0], err)
				}
				v := render.View{Message: out, Tables: []render.Table{findingTable(out.GetFinding())}, Lines: []string{strings.TrimSpace(out.GetOutcome() + " " + out.GetDetail())}}
				if op := out.GetOperation(); op != nil {
					v.Lines = append(v.Lines, "operation "+op.GetOperationId()+" "+render.Word(op.GetState())+": cellctl approval approve "+op.GetOperationId())
				}
				return c.show(v)
			})
		},
	}
	m.flags(cmd)
	m.reasonFlag(cmd)
	f := cmd.Flags()
	f.StringVar(&action, "action", "", strings.Join(repairActions, ", "))
	f.StringVar(&incident, "incident", "", "incident that explains it; required for reverse and for ending a MANUAL_REVIEW")
	f.StringVar(&owner, "owner", "", "who looks after the finding from now on")
	fixed(cmd, "action", repairActions...)
	return cmd
}
