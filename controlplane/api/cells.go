package api

import (
	"cmp"
	"context"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/cellquota/cellquota/controlplane/access"
	"github.com/cellquota/cellquota/controlplane/convert"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/intent"
	"github.com/cellquota/cellquota/controlplane/reclaim"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/transport"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Liveness is what the hub of streams knows of processes; link.Hub implements it.
// A replica that does not lead knows nothing and says so.
type Liveness interface {
	// Process gives the remaining lease, whether it reports for the shard, and its
	// readiness faults; false where it has no stream here.
	Process(cell ids.CellID, instance string) (lease time.Duration, reporter bool, faults []string, ok bool)
	// Reported gives the age of the cell's last report and the units that reports
	// of fence version from and above say are available or reserved; false where
	// there is no report under this leader.
	Reported(cell ids.CellID, from int64) (age time.Duration, atRisk int64, ok bool)
}

// Shards reaches the cells' PostgreSQL as the reader.
type Shards interface {
	// Reachable is nil when the shard answered the reader just now.
	Reachable(ctx context.Context, spec core.CellSpec) error
}

// Cells is CellAdminService.
type Cells struct {
	pb.UnimplementedCellAdminServiceServer
	Intent   *intent.Service
	View     *view.View
	Liveness Liveness
	Shards   Shards
	// Orders and Drains take cells out of service.
	Orders *reclaim.Orders
	Drains Drains
	// Peers are the other replicas; nil: this one is alone and knows everything.
	Peers Peers
	// StaleAfter is the age from which a report is stale; 0: 5 s.
	StaleAfter time.Duration
	// Checker looks at a cell's parts.
	Checker Checker
	// SecretsDir is where files must lie that a cell's spec names; "": see core.Naming.
	SecretsDir string
	// Dial reaches a process of a cell.
	Dial func(addr string) (*grpc.ClientConn, error)
}

// CreateCell provisions a cell.
func (h *Cells) CreateCell(ctx context.Context, req *pb.CreateCellRequest) (*pb.CreateCellResponse, error) {
	var f fields
	spec, op := convert.FromCellSpec(req.GetSpec()), f.operation("operation_id", req.GetOperationId())
	for _, v := range h.Intent.CellFaults(spec) {
		f.add("spec."+v.Field, v.Rule)
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	if err := access.Region(ctx, spec.Region); err != nil {
		return nil, err
	}
	present, _ := h.View.Snapshot().Cell(spec.ID) // a repeat names what is stored
	if err := h.mayName(ctx, spec, present.Spec, false); err != nil {
		return nil, err
	}
	cell, err := h.Intent.ProvisionCell(ctx, caller(ctx), spec, op, req.GetValidateOnly())
	if err != nil {
		return nil, err
	}
	return &pb.CreateCellResponse{Cell: h.render(ctx, h.View.Snapshot(), cell, false), OperationId: op}, nil
}

// GetCell answers one cell, its shard asked.
func (h *Cells) GetCell(ctx context.Context, req *pb.GetCellRequest) (*pb.GetCellResponse, error) {
	var f fields
	id := f.cell(req.GetCellId())
	if err := f.err(); err != nil {
		return nil, err
	}
	if out, ok := fromLeader(ctx, h, func(ctx context.Context, leader grpc.ClientConnInterface) (*pb.GetCellResponse, error) {
		return pb.NewCellAdminServiceClient(leader).GetCell(ctx, req)
	}); ok {
		return out, nil
	}
	s := h.View.Snapshot()
	cell, known := s.Cell(id)
	if !known {
		return nil, unknownCell(id)
	}
	return &pb.GetCellResponse{Cell: h.render(ctx, s, cell, true)}, nil
}

// ListCells answers a page of cells; shards are asked side by side.
func (h *Cells) ListCells(ctx context.Context, req *pb.ListCellsRequest) (*pb.ListCellsResponse, error) {
	var f fields
	size, after := f.pageSize(req.GetPageSize()), f.after(req.GetPageToken())
	if err := f.err(); err != nil {
		return nil, err
	}
	if out, ok := fromLeader(ctx, h, func(ctx context.Context, leader grpc.ClientConnInterface) (*pb.ListCellsResponse, error) {
		return pb.NewCellAdminServiceClient(leader).ListCells(ctx, req)
	}); ok {
		return out, nil
	}
	s := h.View.Snapshot()
	cells, next := page(s.Cells(), func(c core.Cell) string { return string(c.Spec.ID) }, after, size)
	out := &pb.ListCellsResponse{Cells: make([]*pb.Cell, len(cells)), NextPageToken: next}
	var asked errgroup.Group
	asked.SetLimit(16)
	for i, c := range cells {
		asked.Go(func() error { out.Cells[i] = h.render(ctx, s, c, true); return nil })
	}
	return out, asked.Wait()
}

// GetGate asks every live process of a cell for its gates.
func (h *Cells) GetGate(ctx context.Context, req *pb.CellAdminServiceGetGateRequest) (*pb.CellAdminServiceGetGateResponse, error) {
	var f fields
	id := f.cell(req.GetCellId())
	if err := f.err(); err != nil {
		return nil, err
	}
	s := h.View.Snapshot()
	if _, known := s.Cell(id); !known {
		return nil, unknownCell(id)
	}
	instances := s.Instances(id)
	gates, faults := make([]*pb.GetGateResponse, len(instances)), make([]error, len(instances))
	var asked errgroup.Group
	asked.SetLimit(16)
	for i, in := range instances {
		asked.Go(func() error { gates[i], faults[i] = h.gate(ctx, in.Address); return nil })
	}
	_ = asked.Wait()
	out := &pb.CellAdminServiceGetGateResponse{Unreachable: map[string]string{}}
	for i, in := range instances {
		if faults[i] != nil {
			out.Unreachable[in.ID] = faults[i].Error()
			continue
		}
		out.Processes = append(out.Processes, gates[i])
	}
	return out, nil
}

func (h *Cells) gate(ctx context.Context, addr string) (*pb.GetGateResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	conn, err := h.Dial(addr)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	return pb.NewCellFactsServiceClient(conn).GetGate(ctx, &pb.GetGateRequest{})
}

const defaultStale = 5 * time.Second

// askTime bounds what one cell or shard may take of a call.
const askTime = 2 * time.Second

// render gives a cell with its processes and, if asked for, whether its shard
// answers.
func (h *Cells) render(ctx context.Context, s view.Snapshot, c core.Cell, ask bool) *pb.Cell {
	out := &pb.Cell{
		Spec: convert.CellSpec(c.Spec), State: pb.CellState(s.CellState(c)), Version: c.Version, FenceVersion: c.FenceVersion,
		LastReportAgeMs: -1, Paused: c.Paused, PauseReason: c.PauseReason, OperationId: c.OperationID, InstanceGroup: c.InstanceGroup,
	}
	_, out.LivenessUnknown = h.leads(s)
	for _, in := range s.Instances(c.Spec.ID) {
		lease, reporter, faults, _ := h.Liveness.Process(c.Spec.ID, in.ID)
		if out.LivenessUnknown != "" {
			lease = -time.Millisecond
		}
		out.Instances = append(out.Instances, &pb.Instance{
			InstanceId: in.ID, Address: in.Address, Roles: in.Roles, LeaseRemainingMs: lease.Milliseconds(), Reporter: reporter, Faults: faults, ProgramVersion: in.ProgramVersion,
		})
	}
	for _, b := range s.Books("") {
		if a, held := b.Allocation(c.Spec.ID); held {
			out.AllocatedUnits += a.Granted.Int64()
		}
	}
	if frozen(c) {
		out.FrozenUnits = out.AllocatedUnits
	}
	age, atRisk, ok := h.Liveness.Reported(c.Spec.ID, counted(c))
	if ok {
		out.LastReportAgeMs, out.UnitsAtRisk = age.Milliseconds(), min(atRisk, out.AllocatedUnits)
	}
	out.ReportStale = out.LivenessUnknown == "" && (ok && age > cmp.Or(h.StaleAfter, defaultStale) || !ok && len(out.Instances) > 0 && out.AllocatedUnits > 0)
	if ask {
		out.ShardReachable, out.ShardDetail = h.ask(ctx, c.Spec)
	}
	return out
}

// frozen tells whether what the cell was granted can be sold by nobody now: it is
// being fenced, or is fenced and its proof is not booked.
func frozen(c core.Cell) bool {
	return c.State == core.CellFencing || c.State == core.CellFenced && !c.Reclaimed
}

// counted is the lowest fence version whose reports tell of units at risk. What a
// report said before a fence that is booked went back to the reserve; while the
// fence is not proved, the last report is the best that is known.
func counted(c core.Cell) int64 {
	if c.ProofID != "" && c.Reclaimed && c.State != core.CellFencing {
		return c.FenceVersion
	}
	return 0
}

func (h *Cells) ask(ctx context.Context, spec core.CellSpec) (bool, string) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	if err := h.Shards.Reachable(ctx, spec); err != nil {
		return false, err.Error()
	}
	return true, ""
}

// caller names the principal and the method for records.
func caller(ctx context.Context) intent.Caller {
	method, _ := grpc.Method(ctx)
	p, _ := transport.PrincipalFrom(ctx)
	return intent.Caller{Name: access.Name(ctx), Method: method, Issuers: p.Issuers, Any: p.Role == access.SRE}
}
