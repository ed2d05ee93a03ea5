package api

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cellquota/cellquota/controlplane/access"
	"github.com/cellquota/cellquota/controlplane/convert"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/intent"
	"github.com/cellquota/cellquota/controlplane/report/shards"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// errUnknownFinding: no shard that answers has such a finding.
var errUnknownFinding = errors.New("no such finding")

// Reconcile is ReconcileService: findings are read from the shards, runs and repairs are asked of the cells.
type Reconcile struct {
	pb.UnimplementedReconcileServiceServer
	View   *view.View
	Reader *shards.Reader
	// Dial reaches a process of a cell.
	Dial func(addr string) (*grpc.ClientConn, error)
	// Reversals begins what a second person must approve.
	Reversals *intent.Service
}

// openStates are what a list shows unless it is told otherwise.
var openStates = []string{"OPEN", "PROPOSED", "MANUAL_REVIEW"}

// ListFindings reads the findings of every cell from its shard.
func (h *Reconcile) ListFindings(ctx context.Context, req *pb.ListFindingsRequest) (*pb.ListFindingsResponse, error) {
	// 1. What is asked for.
	var f fields
	size, from := f.pageSize(req.GetPageSize()), f.findingAfter(req.GetPageToken())
	if req.GetPageSize() == 0 {
		size = maxPage
	}
	filter := shards.FindingFilter{SKU: req.GetSkuId(), States: openStates, Limit: size + 1}
	if req.GetCampaignId() != "" {
		filter.Campaign = string(f.campaign(req.GetCampaignId()))
	}
	switch {
	case req.GetState() != pb.FindingState_FINDING_STATE_UNSPECIFIED:
		filter.States = []string{strings.TrimPrefix(req.GetState().String(), "FINDING_STATE_")}
	case req.GetAll():
		filter.States = append([]string{"REPAIRED"}, openStates...)
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	s := h.View.Snapshot()
	cells, err := h.cells(s, req.GetCellId())
	if err != nil {
		return nil, err
	}
	cells = slices.DeleteFunc(cells, func(c core.Cell) bool { return c.Spec.ID < from.cell })

	// 2. Every shard at once.
	type part struct {
		findings []shards.Finding
		frozen   []shards.Frozen
	}
	read := func(ctx context.Context, shard *shards.Snapshot) (p part, err error) {
		if p.findings, err = shard.Findings(ctx, filter); err == nil {
			p.frozen, err = shard.FrozenSKUs(ctx)
		}
		return p, err
	}
	var answers []answer[part]
	if len(cells) > 0 && cells[0].Spec.ID == from.cell { // where the page before ended
		whole := filter
		filter.AfterMicros, filter.AfterID = from.micros, from.id
		answers = each(ctx, h.Reader, cells[:1], read)
		filter, cells = whole, cells[1:]
	}
	answers = append(answers, each(ctx, h.Reader, cells, read)...)

	// 3. One page of it.
	out := &pb.ListFindingsResponse{}
	last := from
	for _, a := range answers {
		cell := a.cell.Spec.ID
		if a.err != nil {
			out.Unread = append(out.Unread, &pb.UnreadShard{CellId: string(cell), Detail: a.err.Error()})
			continue
		}
		if req.GetPageToken() == "" {
			for _, z := range a.value.frozen {
				out.Frozen = append(out.Frozen, &pb.FrozenSku{CellId: string(cell), CampaignId: z.Campaign, SkuId: z.SKU, FindingId: z.Finding, Findings: z.Findings})
			}
		}
		for i := range a.value.findings {
			if len(out.GetFindings()) == size {
				out.NextPageToken = pageToken(string(last.cell), strconv.FormatInt(last.micros, 10), last.id)
				continue // the shards behind are still named when they are silent
			}
			one := &a.value.findings[i]
			out.Findings = append(out.Findings, renderFinding(s, cell, one))
			last = findingPlace{cell, one.FoundMicros, one.ID}
		}
	}
	return out, nil
}

// findingPlace is where a page ended.
type findingPlace struct {
	cell   ids.CellID
	micros int64
	id     string
}

func (f *fields) findingAfter(token string) findingPlace {
	if token == "" {
		return findingPlace{}
	}
	part := strings.SplitN(f.after(token), " ", 3)
	if len(part) == 3 {
		if micros, err := strconv.ParseInt(part[1], 10, 64); err == nil {
			return findingPlace{ids.CellID(part[0]), micros, part[2]}
		}
	}
	f.add("page_token", "must be the next_page_token of an earlier answer")
	return findingPlace{}
}

// cells are those that a call is about, in order of ids.
func (h *Reconcile) cells(s view.Snapshot, id string) ([]core.Cell, error) {
	if id == "" {
		return s.Cells(), nil
	}
	cell, known := s.Cell(ids.CellID(id))
	if !known {
		return nil, unknownCell(ids.CellID(id))
	}
	return []core.Cell{cell}, nil
}

// GetFinding answers one finding from the shard that its id names.
func (h *Reconcile) GetFinding(ctx context.Context, req *pb.GetFindingRequest) (*pb.GetFindingResponse, error) {
	s := h.View.Snapshot()
	out, _, err := h.find(ctx, s, req.GetFindingId())
	return out, err
}

// find looks for a finding where its id says, else everywhere. A shard that is silent may have it.
func (h *Reconcile) find(ctx context.Context, s view.Snapshot, id string) (*pb.GetFindingResponse, ids.CellID, error) {
	cells := s.Cells()
	if home, _, named := strings.Cut(id, ".f"); named {
		if cell, known := s.Cell(ids.CellID(home)); known {
			cells = []core.Cell{cell}
		}
	}
	answers := each(ctx, h.Reader, cells, func(ctx context.Context, shard *shards.Snapshot) (*pb.GetFindingResponse, error) {
		f, scene, done, found, err := shard.Finding(ctx, id)
		if err != nil || !found {
			return nil, err
		}
		out := &pb.GetFindingResponse{Finding: renderFinding(s, "", &f), Snapshot: scene}
		for _, r := range done {
			out.Repairs = append(out.Repairs, &pb.FindingRepair{
				Action: r.Action, Outcome: r.Outcome, Detail: r.Detail, Actor: r.Actor, Reason: r.Reason, Incident: r.Incident, ApprovalId: r.Approval,
				Approver: r.Approver, At: timestamppb.New(r.At),
			})
		}
		return out, nil
	})
	var silent error
	for _, a := range answers {
		if a.value != nil {
			a.value.Finding.CellId = string(a.cell.Spec.ID)
			return a.value, a.cell.Spec.ID, nil
		}
		silent = errors.Join(silent, a.err)
	}
	if silent != nil {
		return nil, "", fmt.Errorf("%w: %w", rpcstatus.ErrUnavailable, silent)
	}
	return nil, "", rpcstatus.With(fmt.Errorf("%w: %s", errUnknownFinding, id), map[string]string{"finding_id": id}, nil, 0)
}

func renderFinding(s view.Snapshot, cell ids.CellID, f *shards.Finding) *pb.Finding {
	out := &pb.Finding{
		FindingId: f.ID, Kind: word[pb.FindingKind](pb.FindingKind_value, "FINDING_KIND_", f.Kind), CampaignId: f.Campaign, SkuId: f.SKU, RequestId: f.Request,
		EventId: f.Event, ReservationId: f.Reservation, OrderId: f.Order, Units: f.Units, AgeSeconds: f.AgeSeconds,
		State: word[pb.FindingState](pb.FindingState_value, "FINDING_STATE_", f.State), Action: f.Action, CellId: string(cell), Detail: f.Detail, Owner: f.Owner,
		Tries: f.Tries, EntryId: f.Entry,
	}
	if c, known := s.Campaign(ids.CampaignID(f.Campaign)); known && out.GetOwner() == "" {
		out.Owner = c.Owner
	}
	return out
}

// RunReconcile asks the cells for a full comparison, or how far the one of this id is.
func (h *Reconcile) RunReconcile(ctx context.Context, req *pb.RunReconcileRequest) (*pb.RunReconcileResponse, error) {
	var f fields
	id, reason := f.operation("operation_id", req.GetOperationId()), f.reason(req.GetReason(), false)
	if req.GetCampaignId() != "" {
		f.campaign(req.GetCampaignId())
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	s := h.View.Snapshot()
	cells, err := h.cells(s, req.GetCellId())
	if err != nil {
		return nil, err
	}
	out := &pb.RunReconcileResponse{OperationId: id, Done: true, Runs: make([]*pb.ReconcileRun, len(cells))}
	ask := &pb.CellReconcileServiceRunRequest{RunId: id, CampaignId: req.GetCampaignId(), Actor: access.Name(ctx), Reason: reason}
	var all errgroup.Group
	all.SetLimit(runsAtOnce)
	for i, c := range cells {
		out.Runs[i] = &pb.ReconcileRun{CellId: string(c.Spec.ID)}
		if req.GetValidateOnly() {
			continue
		}
		all.Go(func() error {
			if err := h.ask(ctx, c.Spec.ID, func(ctx context.Context, cell pb.CellReconcileServiceClient) error {
				got, err := cell.Run(ctx, ask)
				if err == nil {
					out.Runs[i] = got.GetRun()
					out.Runs[i].CellId = string(c.Spec.ID)
				}
				return err
			}); err != nil {
				out.Runs[i].Detail = err.Error()
			}
			return nil
		})
	}
	_ = all.Wait() // each says in its run what went wrong
	for _, r := range out.GetRuns() {
		out.Done = out.Done && (r.GetEndedAt() != nil || req.GetValidateOnly())
	}
	return out, nil
}

// runsAtOnce bounds the cells that compare at the same time for one call: a platform may have a thousand.
const runsAtOnce = 16

// incidents is what an incident may be called: it stands in an operation's subject.
var incidents = regexp.MustCompile(`^[A-Za-z0-9._#:-]{1,64}$`)

// RepairFinding hands a repair to the finding's cell; a reversal waits for a second person first.
func (h *Reconcile) RepairFinding(ctx context.Context, req *pb.RepairFindingRequest) (*pb.RepairFindingResponse, error) {
	var f fields
	id, reason := f.operation("operation_id", req.GetOperationId()), f.reason(req.GetReason(), true)
	reverses := req.GetAction() == pb.RepairAction_REPAIR_ACTION_REVERSE
	switch {
	case req.GetIncident() != "" && !incidents.MatchString(req.GetIncident()):
		f.add("incident", "must be [A-Za-z0-9._#:-]{1,64}")
	case reverses && req.GetIncident() == "":
		f.add("incident", "is required for REVERSE")
	}
	if req.GetAction() == pb.RepairAction_REPAIR_ACTION_UNSPECIFIED && req.GetOwner() == "" {
		f.add("action", "must be given, unless only the owner changes")
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	s := h.View.Snapshot()
	found, cell, err := h.find(ctx, s, req.GetFindingId())
	if err != nil {
		return nil, err
	}
	out := &pb.RepairFindingResponse{Finding: found.GetFinding(), OperationId: id}
	if reverses {
		op, err := h.Reversals.ReverseEntry(ctx, caller(ctx), id, core.Reversal{Finding: req.GetFindingId(), Incident: req.GetIncident()}, reason, req.GetValidateOnly())
		if err != nil {
			return nil, err
		}
		out.Detail = "waits for a second person's approval"
		if op.ID != "" {
			out.Operation = convert.Operation(op)
		}
		return out, nil
	}
	who := access.Name(ctx)
	got, err := h.repairIn(ctx, cell, &pb.CellReconcileServiceRepairRequest{
		FindingId: req.GetFindingId(), Action: req.GetAction(), Actor: who, Reason: reason, Incident: req.GetIncident(), ValidateOnly: req.GetValidateOnly(), Owner: req.GetOwner(),
	})
	if err != nil {
		return nil, err
	}
	out.Outcome, out.Detail = got.GetOutcome(), got.GetDetail()
	if !req.GetValidateOnly() {
		if after, _, err := h.find(ctx, s, req.GetFindingId()); err == nil {
			out.Finding = after.GetFinding()
		}
	}
	return out, nil
}

// RepairIn carries a repair out in the finding's cell.
func (h *Reconcile) RepairIn(ctx context.Context, in *pb.CellReconcileServiceRepairRequest) (*pb.CellReconcileServiceRepairResponse, error) {
	_, cell, err := h.find(ctx, h.View.Snapshot(), in.GetFindingId())
	if err != nil {
		return nil, err
	}
	return h.repairIn(ctx, cell, in)
}

func (h *Reconcile) repairIn(ctx context.Context, cell ids.CellID, in *pb.CellReconcileServiceRepairRequest) (out *pb.CellReconcileServiceRepairResponse, err error) {
	err = h.ask(ctx, cell, func(ctx context.Context, c pb.CellReconcileServiceClient) (err error) {
		out, err = c.Repair(ctx, in)
		return err
	})
	return out, err
}

// ask calls a process of the cell, and another one where it does not answer.
func (h *Reconcile) ask(ctx context.Context, cell ids.CellID, call func(context.Context, pb.CellReconcileServiceClient) error) error {
	err := errNoProcess
	for _, process := range h.View.Snapshot().Instances(cell) {
		if err = h.askOne(ctx, process.Address, call); err == nil || !elsewhere(err) {
			return err
		}
	}
	return fmt.Errorf("%w: cell %s: %w", rpcstatus.ErrUnavailable, cell, err)
}

func (h *Reconcile) askOne(ctx context.Context, addr string, call func(context.Context, pb.CellReconcileServiceClient) error) error {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	conn, err := h.Dial(addr)
	if err != nil {
		return fmt.Errorf("%w: %w", rpcstatus.ErrUnavailable, err)
	}
	defer func() { _ = conn.Close() }() // nothing is under way any more
	return call(ctx, pb.NewCellReconcileServiceClient(conn))
}
