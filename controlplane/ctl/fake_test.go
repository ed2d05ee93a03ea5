package ctl

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cellquota/cellquota/controlplane/campaignfile"
	"github.com/cellquota/cellquota/deploy/local/platform"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/transport"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// fake is a control plane with one campaign in one book, three cells and whatever a test puts into it.
type fake struct {
	pb.UnimplementedCellAdminServiceServer
	pb.UnimplementedFenceServiceServer
	pb.UnimplementedCampaignServiceServer
	pb.UnimplementedQuotaServiceServer
	pb.UnimplementedRoutingServiceServer
	pb.UnimplementedReportServiceServer

	mu       sync.Mutex
	tokens   []string // of every call, in order
	refusals int      // calls that are refused as unavailable before one is answered
	seen     []proto.Message
	ops      map[string]*pb.Operation
	verdict  *pb.VerifyResponse
	looks    int                          // at the campaign flaky
	resolved map[string][]*pb.ResolvedRow // by request id
	asked    int                          // requests of the largest ResolveRequests
}

// serve starts the fake on loopback and writes its endpoints file.
func serve(t testing.TB, f *fake, file string) {
	t.Helper()
	f.ops = map[string]*pb.Operation{}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := transport.NewServer(transport.ServerOptions{
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Dev: true,
		Authenticator: func(_ context.Context, c transport.Caller) (transport.Principal, error) {
			return f.authenticate(bearer(c))
		},
	})
	pb.RegisterCellAdminServiceServer(s, f)
	pb.RegisterFenceServiceServer(s, f)
	pb.RegisterCampaignServiceServer(s, f)
	pb.RegisterQuotaServiceServer(s, f)
	pb.RegisterRoutingServiceServer(s, f)
	pb.RegisterReportServiceServer(s, f)
	pb.RegisterAccessServiceServer(s, accesses{f: f})
	pb.RegisterOperationServiceServer(s, operations{f: f})
	pb.RegisterOrderServiceServer(s, till{})
	pb.RegisterReconcileServiceServer(s, &ledgers{f: f})
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		<-served
	})
	e := platform.Endpoints{ControlPlanes: []platform.ControlPlane{{GRPC: l.Addr().String()}}, Operators: map[string]string{}}
	for _, role := range []string{"region-operator", "campaign-manager", "sre", "viewer"} {
		e.Operators[role] = "token-" + role
	}
	if err := e.Write(file); err != nil {
		t.Fatal(err)
	}
}

func (f *fake) authenticate(token string) (transport.Principal, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tokens = append(f.tokens, token)
	if f.refusals > 0 {
		f.refusals--
		return transport.Principal{}, fmt.Errorf("%w: no replica leads", rpcstatus.ErrUnavailable)
	}
	if token == "" {
		return transport.Principal{}, rpcstatus.ErrUnauthenticated
	}
	return transport.Principal{Name: token}, nil
}

func (f *fake) note(m proto.Message) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen = append(f.seen, proto.Clone(m))
}

func (f *fake) CreateCell(_ context.Context, in *pb.CreateCellRequest) (*pb.CreateCellResponse, error) {
	f.note(in)
	return &pb.CreateCellResponse{OperationId: in.GetOperationId(), Cell: &pb.Cell{Spec: in.GetSpec(), State: pb.CellState_CELL_STATE_PROVISIONED, LastReportAgeMs: -1}}, nil
}

func (f *fake) GetCell(_ context.Context, in *pb.GetCellRequest) (*pb.GetCellResponse, error) {
	if in.GetCellId() != "cell-1" {
		return nil, fmt.Errorf("%w: cell %s", rpcstatus.ErrNotFound, in.GetCellId())
	}
	return &pb.GetCellResponse{Cell: cell("cell-1", pb.CellState_CELL_STATE_ACTIVE)}, nil
}

func cell(id string, state pb.CellState) *pb.Cell {
	return &pb.Cell{
		Spec: &pb.CellSpec{CellId: id, Region: "east", Weight: 1}, State: state, Version: 4, FenceVersion: 2, AllocatedUnits: 2400, UnitsAtRisk: 1200,
		LastReportAgeMs: 200, ShardReachable: true,
		Instances: []*pb.Instance{{InstanceId: "i-1", Address: "127.0.0.1:9", Roles: []string{"admission", "orders"}, LeaseRemainingMs: 4200, Reporter: true}},
	}
}

// ListCells answers two pages.
func (f *fake) ListCells(_ context.Context, in *pb.ListCellsRequest) (*pb.ListCellsResponse, error) {
	if in.GetPageToken() == "" {
		return &pb.ListCellsResponse{Cells: []*pb.Cell{cell("cell-1", pb.CellState_CELL_STATE_ACTIVE)}, NextPageToken: "2"}, nil
	}
	return &pb.ListCellsResponse{Cells: []*pb.Cell{cell("cell-2", pb.CellState_CELL_STATE_SUSPECT)}}, nil
}

func (f *fake) GetGate(_ context.Context, in *pb.CellAdminServiceGetGateRequest) (*pb.CellAdminServiceGetGateResponse, error) {
	if in.GetCellId() != "cell-1" {
		return nil, fmt.Errorf("%w: no such cell as %s", rpcstatus.ErrNotFound, in.GetCellId())
	}
	return &pb.CellAdminServiceGetGateResponse{
		Processes:   []*pb.GetGateResponse{{InstanceId: "i-1", Gates: []*pb.SkuGate{{CampaignId: "demo", SkuId: "phone-x", State: pb.GateState_GATE_STATE_THROTTLED, Bound: 40, ConsumeRate: 123.4}}}},
		Unreachable: map[string]string{"i-2": "connection refused"},
	}, nil
}

// FenceCell refuses a healthy cell without force.
func (f *fake) FenceCell(_ context.Context, in *pb.FenceCellRequest) (*pb.FenceCellResponse, error) {
	f.note(in)
	if in.GetCellId() == "cell-1" && !in.GetForce() {
		return nil, rpcstatus.With(fmt.Errorf("%w: cell-1 is alive", rpcstatus.ErrFailedPrecondition), nil, []rpcstatus.Violation{{Field: "force", Rule: "must be set to fence a cell that is alive"}}, 0)
	}
	sealed := []*pb.SkuUnits{{CampaignId: "demo", SkuId: "phone-x", Units: 1200}}
	if in.GetValidateOnly() {
		return &pb.FenceCellResponse{Sealed: sealed}, nil
	}
	return &pb.FenceCellResponse{Sealed: sealed, OperationId: in.GetOperationId(), Operation: f.run(in.GetOperationId(), "fence-cell", in.GetCellId())}, nil
}

// ReclaimCell writes off cell-3 only: the shards of the others answer.
func (f *fake) ReclaimCell(_ context.Context, in *pb.ReclaimCellRequest) (*pb.ReclaimCellResponse, error) {
	f.note(in)
	if in.GetWriteOff() && in.GetCellId() != "cell-3" {
		return nil, fmt.Errorf("%w: cell %s: its shard answers", rpcstatus.ErrFailedPrecondition, in.GetCellId())
	}
	units := []*pb.SkuUnits{{CampaignId: "demo", SkuId: "phone-x", Units: 1300}}
	switch {
	case in.GetValidateOnly() && in.GetWriteOff():
		return &pb.ReclaimCellResponse{WrittenOff: units}, nil
	case in.GetValidateOnly():
		return &pb.ReclaimCellResponse{Reclaimed: units}, nil
	}
	return &pb.ReclaimCellResponse{OperationId: in.GetOperationId(), Operation: f.run(in.GetOperationId(), "write-off-cell", in.GetCellId())}, nil
}

// run notes an operation that its subject decides: cell-3 never ends, cell-4 fails.
func (f *fake) run(id, kind, subject string) *pb.Operation {
	f.mu.Lock()
	defer f.mu.Unlock()
	op := &pb.Operation{OperationId: id, Kind: kind, Subject: subject, State: pb.OperationState_OPERATION_STATE_RUNNING, Step: "FENCE"}
	f.ops[id] = op
	return proto.CloneOf(op)
}

func (f *fake) CreateCampaign(_ context.Context, in *pb.CreateCampaignRequest) (*pb.CreateCampaignResponse, error) {
	f.note(in)
	spec, _, faults := campaignfile.ParseCampaign(in.GetYaml())
	if len(faults) > 0 {
		return nil, campaignfile.Error(faults)
	}
	return &pb.CreateCampaignResponse{OperationId: in.GetOperationId(), Campaign: campaign(string(spec.ID))}, nil
}

func campaign(id string) *pb.Campaign {
	return &pb.Campaign{
		State: pb.CampaignState_CAMPAIGN_STATE_DRAFT, Version: 1,
		Spec: &pb.CampaignSpec{CampaignId: id, OpenAt: timestamppb.New(eleventh), CloseAt: timestamppb.New(eleventh.AddDate(0, 0, 1)), Skus: []*pb.SkuSpec{{SkuId: "phone-x", SaleLimit: 10000, Reserve: 400, PhysicalStock: 12000, Price: &pb.Money{Amount: "4999.00", Currency: "CNY"}}}},
	}
}

func (f *fake) ValidateCampaign(_ context.Context, in *pb.ValidateCampaignRequest) (*pb.ValidateCampaignResponse, error) {
	spec, _, faults := campaignfile.ParseCampaign(in.GetYaml())
	out := &pb.ValidateCampaignResponse{}
	for _, x := range faults {
		out.Faults = append(out.Faults, &pb.FileFault{Path: x.Path, Line: int32(x.Line), Column: int32(x.Column), Rule: x.Rule})
	}
	if len(faults) == 0 {
		out.Spec = campaign(string(spec.ID)).GetSpec()
	}
	return out, nil
}

func (f *fake) PublishCampaign(_ context.Context, in *pb.PublishCampaignRequest) (*pb.PublishCampaignResponse, error) {
	return &pb.PublishCampaignResponse{OperationId: in.GetOperationId(), Campaign: campaign(in.GetCampaignId()), Operation: f.run(in.GetOperationId(), "publish-campaign", in.GetCampaignId())}, nil
}

func (f *fake) GetCampaign(_ context.Context, in *pb.GetCampaignRequest) (*pb.GetCampaignResponse, error) {
	c := campaign(in.GetCampaignId())
	c.State = pb.CampaignState_CAMPAIGN_STATE_OPEN
	switch in.GetCampaignId() {
	case "over":
		c.State = pb.CampaignState_CAMPAIGN_STATE_CLOSED
	case "flaky": // on sale, then nobody answers for as long as a client tries, then settled
		f.mu.Lock()
		f.looks++
		looks := f.looks
		f.mu.Unlock()
		if looks > 1 && looks < 10 {
			return nil, fmt.Errorf("%w: the view is gone", rpcstatus.ErrUnavailable)
		}
		if looks > 1 {
			c.State = pb.CampaignState_CAMPAIGN_STATE_SETTLED
		}
	case "settled":
		c.State, c.Spec.Cells = pb.CampaignState_CAMPAIGN_STATE_SETTLED, []string{"cell-1", "cell-9"}
		c.FinalSkus = []string{"phone-x"}
	}
	return &pb.GetCampaignResponse{Campaign: c}, nil
}

func book() *pb.Book {
	return &pb.Book{CampaignId: "demo", SkuId: "phone-x", SaleLimit: 10000, Reserve: 5200, Version: 9, Allocations: []*pb.Allocation{
		{CellId: "cell-1", Granted: 2400, FenceVersion: 1, State: pb.CellState_CELL_STATE_ACTIVE, LastNumber: 1, FirstGrant: 2300},
		{CellId: "cell-2", Granted: 2400, FenceVersion: 1, State: pb.CellState_CELL_STATE_ACTIVE, LastNumber: 1},
	}}
}

func (f *fake) ListAllocations(context.Context, *pb.ListAllocationsRequest) (*pb.ListAllocationsResponse, error) {
	return &pb.ListAllocationsResponse{Books: []*pb.Book{book()}, Revision: 77}, nil
}

func (f *fake) TopUp(_ context.Context, in *pb.TopUpRequest) (*pb.TopUpResponse, error) {
	f.note(in)
	if in.GetUnits() > 5200 {
		return nil, rpcstatus.With(fmt.Errorf("%w: the reserve of demo/phone-x holds 5200", rpcstatus.ErrFailedPrecondition), nil, []rpcstatus.Violation{{Field: "units", Rule: "must be at most the reserve (5200)"}}, 0)
	}
	return &pb.TopUpResponse{OperationId: in.GetAdjustmentId(), Book: book(), Adjustment: f.adjustment(in, pb.JournalState_JOURNAL_STATE_BOOKED)}, nil
}

// ReturnUnits: cell-1 has 100 units available.
func (f *fake) ReturnUnits(_ context.Context, in *pb.ReturnUnitsRequest) (*pb.ReturnUnitsResponse, error) {
	f.note(in)
	return &pb.ReturnUnitsResponse{OperationId: in.GetAdjustmentId(), Book: book(), Adjustment: returned(in, pb.JournalState_JOURNAL_STATE_PROPOSED)}, nil
}

func returned(in *pb.ReturnUnitsRequest, state pb.JournalState) *pb.Adjustment {
	a := &pb.Adjustment{AdjustmentId: in.GetAdjustmentId(), CampaignId: in.GetCampaignId(), SkuId: in.GetSkuId(), CellId: in.GetCellId(), Units: in.GetUnits(), Kind: pb.AdjustmentKind_ADJUSTMENT_KIND_RETURN, State: state, Number: 3, FenceVersion: 1}
	if state == pb.JournalState_JOURNAL_STATE_DONE {
		a.Outcome = pb.AdjustmentOutcome_ADJUSTMENT_OUTCOME_APPLIED
		if in.GetUnits() > 100 {
			a.Outcome = pb.AdjustmentOutcome_ADJUSTMENT_OUTCOME_REFUSED
		}
	}
	return a
}

// TransferUnits ends at once; of more than 100 units it fails.
func (f *fake) TransferUnits(_ context.Context, in *pb.TransferUnitsRequest) (*pb.TransferUnitsResponse, error) {
	f.note(in)
	out := &pb.TransferUnitsResponse{OperationId: in.GetAdjustmentId(), Book: book()}
	if !in.GetValidateOnly() {
		out.Operation = &pb.Operation{OperationId: in.GetAdjustmentId(), Kind: "transfer-units", Subject: "demo/phone-x", State: pb.OperationState_OPERATION_STATE_DONE}
		if in.GetUnits() > 100 {
			out.Operation.State, out.Operation.Detail = pb.OperationState_OPERATION_STATE_FAILED, "0 were moved"
		}
	}
	return out, nil
}

// PreviewSplit: nobody was asked of anything yet, but cell-1.
func (f *fake) PreviewSplit(_ context.Context, in *pb.PreviewSplitRequest) (*pb.PreviewSplitResponse, error) {
	f.note(in)
	return &pb.PreviewSplitResponse{Reserves: map[string]int32{"phone-x": 5200}, Warnings: []string{"phone-x: no demand was seen"}, Rows: []*pb.SplitRow{
		{SkuId: "phone-x", CellId: "cell-1", Units: 2400, Buckets: 2048, Demand: 77}, {SkuId: "phone-x", CellId: "cell-2", Units: 2400, Buckets: 2048},
	}}, nil
}

func moves() []*pb.RebalanceMove {
	return []*pb.RebalanceMove{
		{SkuId: "phone-x", FromCellId: "cell-1", ToCellId: "cell-2", Units: 50, Why: "cell-2 lacks 50"}, {SkuId: "phone-x", FromCellId: "cell-9", Units: 7, Why: "cell-9 owns no bucket"},
	}
}

// PlanRebalance of campaign still is empty.
func (f *fake) PlanRebalance(_ context.Context, in *pb.PlanRebalanceRequest) (*pb.PlanRebalanceResponse, error) {
	f.note(in)
	out := &pb.PlanRebalanceResponse{BookVersions: map[string]int64{"phone-x": 9}, Skipped: []string{"phone-x: cell cell-3: the cell is SUSPECT"}}
	if in.GetCampaignId() != "still" {
		out.Moves = moves()
	}
	return out, nil
}

// ApplyRebalance of SKU stale finds another version; cell-4 as campaign fails.
func (f *fake) ApplyRebalance(_ context.Context, in *pb.ApplyRebalanceRequest) (*pb.ApplyRebalanceResponse, error) {
	f.note(in)
	if in.GetSkuId() == "stale" {
		return nil, fmt.Errorf("%w: expected 9, present 10", rpcstatus.ErrConflict)
	}
	out := &pb.ApplyRebalanceResponse{OperationId: in.GetOperationId(), Moves: moves()}
	if !in.GetValidateOnly() {
		out.Operation = f.run(in.GetOperationId(), "rebalance", in.GetCampaignId())
	}
	return out, nil
}

// SetSaleLimit refuses what is below its floor of 60.
func (f *fake) SetSaleLimit(_ context.Context, in *pb.SetSaleLimitRequest) (*pb.SetSaleLimitResponse, error) {
	f.note(in)
	if in.GetSaleLimit() < 60 {
		return nil, rpcstatus.With(fmt.Errorf("%w: the limit is below what is sold and reserved: floor=60", rpcstatus.ErrFailedPrecondition), map[string]string{"floor": "60"}, nil, 0)
	}
	return &pb.SetSaleLimitResponse{OperationId: in.GetOperationId(), Book: book(), Floor: 60, Operation: &pb.Operation{
		OperationId: in.GetOperationId(), Kind: "set-sale-limit", Subject: "demo/phone-x", State: pb.OperationState_OPERATION_STATE_DONE, Detail: "sale_limit is 70",
	}}, nil
}

func (f *fake) adjustment(in *pb.TopUpRequest, state pb.JournalState) *pb.Adjustment {
	return &pb.Adjustment{AdjustmentId: in.GetAdjustmentId(), CampaignId: in.GetCampaignId(), SkuId: in.GetSkuId(), CellId: in.GetCellId(), Units: in.GetUnits(), Kind: pb.AdjustmentKind_ADJUSTMENT_KIND_GRANT, State: state, Number: 2, FenceVersion: 1}
}

// ListAdjustments answers the last top-up: done, unless it went to cell-3, which is deaf.
func (f *fake) ListAdjustments(context.Context, *pb.ListAdjustmentsRequest) (*pb.ListAdjustmentsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := len(f.seen) - 1; i >= 0; i-- {
		if in, ok := f.seen[i].(*pb.TopUpRequest); ok {
			state := pb.JournalState_JOURNAL_STATE_DONE
			if in.GetCellId() == "cell-3" {
				state = pb.JournalState_JOURNAL_STATE_BOOKED
			}
			return &pb.ListAdjustmentsResponse{Adjustments: []*pb.Adjustment{f.adjustment(in, state)}}, nil
		}
		if in, ok := f.seen[i].(*pb.ReturnUnitsRequest); ok {
			state := pb.JournalState_JOURNAL_STATE_DONE
			if in.GetCellId() == "cell-3" {
				state = pb.JournalState_JOURNAL_STATE_PROPOSED
			}
			return &pb.ListAdjustmentsResponse{Adjustments: []*pb.Adjustment{returned(in, state)}}, nil
		}
	}
	return &pb.ListAdjustmentsResponse{}, nil
}

func (f *fake) LookupHome(context.Context, *pb.LookupHomeRequest) (*pb.LookupHomeResponse, error) {
	return &pb.LookupHomeResponse{CellId: "cell-1", Bucket: 73, RouteVersion: 1}, nil
}

func (f *fake) GetStatus(_ context.Context, in *pb.GetStatusRequest) (*pb.GetStatusResponse, error) {
	var gates []*pb.CellGates
	if in.GetGates() {
		gates = []*pb.CellGates{{CellId: "cell-1", Processes: []*pb.GetGateResponse{{InstanceId: "i-1", Gates: []*pb.SkuGate{{State: pb.GateState_GATE_STATE_PAUSED}}}}}}
	}
	return &pb.GetStatusResponse{Gates: gates, Leader: "127.0.0.1:7", Term: &pb.Term{Count: 3}, EtcdOk: true, Revision: 77, Edges: map[string]int64{"edge-1": 76}, Cells: []*pb.Cell{
		cell("cell-1", pb.CellState_CELL_STATE_ACTIVE), cell("cell-2", pb.CellState_CELL_STATE_SUSPECT),
		{Spec: &pb.CellSpec{CellId: "cell-3"}, State: pb.CellState_CELL_STATE_FENCED}, // without processes: nobody to ask
	}}, nil
}

func (f *fake) Verify(context.Context, *pb.VerifyRequest) (*pb.VerifyResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return proto.CloneOf(f.verdict), nil
}

func (f *fake) ResolveRequests(_ context.Context, in *pb.ResolveRequestsRequest) (*pb.ResolveRequestsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = max(f.asked, len(in.GetKeys()))
	out := &pb.ResolveRequestsResponse{MessagesFrom: map[string]int64{"cell-1": 1}}
	for _, k := range in.GetKeys() {
		out.Requests = append(out.Requests, &pb.ResolvedRequest{Key: k, Rows: f.resolved[k.GetRequestId()]})
	}
	return out, nil
}

func (f *fake) Trace(_ context.Context, in *pb.TraceRequest) (*pb.TraceResponse, error) {
	out := &pb.TraceResponse{Events: []*pb.TraceEvent{{At: timestamppb.New(eleventh), CellId: "cell-1", Store: "order", What: "PENDING_PAYMENT", Fields: map[string]string{"user_id": "alice", "order_id": in.GetId()}}}}
	if in.GetId() == "half" {
		out.Unreachable = map[string]string{"cell-2": "connection refused"}
	}
	return out, nil
}

func (f *fake) GetOrder(_ context.Context, in *pb.ReportServiceGetOrderRequest) (*pb.ReportServiceGetOrderResponse, error) {
	if in.GetOrderId() == "nobodys" {
		return nil, rpcstatus.ErrNotFound
	}
	total := &pb.Money{Amount: "4999.00", Currency: "CNY"}
	return &pb.ReportServiceGetOrderResponse{
		Order:    &pb.OrderView{OrderId: in.GetOrderId(), UserId: "alice", CampaignId: "demo", SkuId: "phone-x", Quantity: 1, Total: total, State: pb.OrderState_ORDER_STATE_PAID, CreatedAtMs: eleventh.UnixMilli()},
		Payments: []*pb.PaymentFacts{{PaymentId: "pay-1", Amount: total, State: pb.PaymentState_PAYMENT_STATE_REFUND_PENDING, RefundId: "rf-1"}},
		Refunds:  []*pb.RefundFacts{{RefundId: "rf-1", PaymentId: "pay-1", Amount: total, Cause: "REQUESTED", State: "PENDING", Asks: 3, Answer: "UNKNOWN", Actor: "sre"}},
	}, nil
}

// till is the part of OrderService that a control plane serves; order "unpaid" cannot be refunded.
type till struct {
	pb.UnimplementedOrderServiceServer
}

func (till) RefundOrder(_ context.Context, in *pb.RefundOrderRequest) (*pb.RefundOrderResponse, error) {
	if in.GetOrderId() == "unpaid" {
		return nil, rpcstatus.ErrFailedPrecondition
	}
	state := pb.PaymentState_PAYMENT_STATE_REFUND_PENDING
	if in.GetValidateOnly() {
		state = pb.PaymentState_PAYMENT_STATE_SUCCEEDED
	}
	return &pb.RefundOrderResponse{
		Order:    &pb.OrderView{OrderId: in.GetOrderId(), State: pb.OrderState_ORDER_STATE_PAID, Total: &pb.Money{Amount: "4999.00", Currency: "CNY"}},
		RefundId: in.GetRefundId(), PaymentId: "pay-1", PaymentState: state, OperationId: in.GetRefundId(),
	}, nil
}

// operations is OperationService, whose methods have short names.
type operations struct {
	pb.UnimplementedOperationServiceServer
	f *fake
}

func (o operations) Wait(ctx context.Context, in *pb.OperationServiceWaitRequest) (*pb.OperationServiceWaitResponse, error) {
	o.f.mu.Lock()
	op, ok := o.f.ops[in.GetOperationId()]
	o.f.mu.Unlock()
	if !ok {
		return nil, rpcstatus.ErrNotFound
	}
	o.f.mu.Lock()
	defer o.f.mu.Unlock()
	switch op.GetSubject() {
	case "cell-3":
		o.f.mu.Unlock()
		<-ctx.Done()
		o.f.mu.Lock()
		return nil, ctx.Err()
	case "cell-4":
		op.State, op.Detail = pb.OperationState_OPERATION_STATE_FAILED, "the shard is of another cell"
	default:
		op.State, op.Step = pb.OperationState_OPERATION_STATE_DONE, ""
	}
	return &pb.OperationServiceWaitResponse{Operation: proto.CloneOf(op)}, nil
}

func (o operations) Get(_ context.Context, in *pb.OperationServiceGetRequest) (*pb.OperationServiceGetResponse, error) {
	o.f.mu.Lock()
	defer o.f.mu.Unlock()
	op, ok := o.f.ops[in.GetOperationId()]
	if !ok {
		return nil, fmt.Errorf("%w: operation %s", rpcstatus.ErrNotFound, in.GetOperationId())
	}
	return &pb.OperationServiceGetResponse{Operation: proto.CloneOf(op)}, nil
}

func bearer(c transport.Caller) string {
	token, _ := c.Bearer() // none is ""
	return token
}
