package api

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellquota/cellquota/controlplane/audit"
	"github.com/cellquota/cellquota/controlplane/convert"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/report/shards"
	"github.com/cellquota/cellquota/controlplane/report/verify"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/telemetry"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Etcd tells whether etcd answers and has room; store.Store implements it.
type Etcd interface {
	Ping(ctx context.Context) error
	// Space gives the size of the largest member's database, and whether any has
	// raised NOSPACE.
	Space(ctx context.Context) (bytes int64, full bool, err error)
}

// Reports is ReportService. Make it with NewReports.
type Reports struct {
	pb.UnimplementedReportServiceServer
	cells        *Cells
	routes       *Routes
	etcd         Etcd
	verifier     *verify.Verifier
	reader       *shards.Reader
	audit        audit.Reader
	uncompared   func() []ids.CellID
	certificates func() []*pb.CertificateStatus
	accounts     Accounts
	// campaignReports are live ones, and those of the archive.
	campaignReports CampaignReports
	history         History
	// accountMetrics is nil where nobody keeps them.
	accountMetrics AccountMetrics

	breaches *prometheus.CounterVec
	turn     chan struct{} // one verification at a time: it reads every ledger
}

// ReportDeps are what reports are made of.
type ReportDeps struct {
	Cells    *Cells
	Routes   *Routes
	Etcd     Etcd
	Verifier *verify.Verifier
	Reader   *shards.Reader
	Audit    audit.Reader
	Accounts Accounts
	// CampaignReports are live ones, and those of the archive.
	CampaignReports CampaignReports
	// History of settled campaigns, for traces; nil: etcd alone.
	History History
	// AccountMetrics is told of accounts of campaigns that are over; nil: nobody.
	AccountMetrics AccountMetrics

	// Uncompared lists the cells that the leader waits for; nil: nobody knows.
	Uncompared func() []ids.CellID
	// Certificates are those that this replica uses; nil: it uses none.
	Certificates func() []*pb.CertificateStatus
	Registry     prometheus.Registerer // nil: no metrics
}

// NewReports makes the service.
func NewReports(d ReportDeps) (*Reports, error) {
	h := &Reports{uncompared: d.Uncompared, certificates: d.Certificates, cells: d.Cells, routes: d.Routes, etcd: d.Etcd, verifier: d.Verifier, reader: d.Reader, audit: d.Audit, accounts: d.Accounts, campaignReports: d.CampaignReports, history: d.History, accountMetrics: d.AccountMetrics, turn: make(chan struct{}, 1)}
	h.breaches = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: telemetry.Namespace, Name: "invariant_breaches_total",
		Help: "Breaches that verifications found, by invariant. Each verification counts what it sees.",
	}, []string{"invariant"})
	for _, i := range verify.All {
		h.breaches.WithLabelValues(string(i)) // 0 from the start: a rule must see the first one as a rise
	}
	if d.Registry == nil {
		return h, nil
	}
	return h, d.Registry.Register(h.breaches)
}

// pingTime bounds the question whether etcd answers.
const pingTime = time.Second

// local is the platform as this replica sees it, from its view; what needs etcd says
// so.
func (h *Reports) local(ctx context.Context, s view.Snapshot) *pb.GetStatusResponse {
	out := &pb.GetStatusResponse{Revision: s.Revision(), ViewAgeMs: s.Age().Milliseconds(), Edges: h.routes.Edges()}
	if leader, led := s.Leader(); led {
		out.Leader, out.Term = leader.Address, convert.Term(leader.Term)
	}
	ping, cancel := context.WithTimeout(ctx, pingTime)
	defer cancel()
	out.EtcdOk = h.etcd.Ping(ping) == nil
	if size, full, err := h.etcd.Space(ping); err == nil {
		out.EtcdSizeBytes, out.EtcdNospace = size, full
	}
	frozen := map[ids.CellID]bool{}
	for _, c := range s.Cells() {
		out.Cells = append(out.Cells, h.cells.render(ctx, s, c, false))
		frozen[c.Spec.ID] = c.State == core.CellFencing || c.State == core.CellFenced && !c.Reclaimed
	}
	for _, b := range s.Books("") {
		for _, a := range b.Allocations {
			if frozen[a.Cell] {
				out.FrozenUnits += a.Granted.Int64() - a.WrittenOff.Int64()
			}
		}
	}
	out.OpenOperations, out.PendingApprovals = int32(len(s.OpenOperations())), int32(len(s.PendingApprovals()))
	out.Quarantined = sortedKeys(s.Quarantined())
	if r, stands := s.Restored(); stands {
		out.Restored = r.String()
	}
	if h.certificates != nil {
		out.Certificates = h.certificates()
	}
	if h.uncompared != nil {
		for _, id := range h.uncompared() {
			out.UncomparedCells = append(out.UncomparedCells, string(id))
		}
	}
	return out
}

// verdicts are the words of verify on the wire.
var verdicts = map[verify.Verdict]pb.Verdict{
	verify.OK: pb.Verdict_VERDICT_OK, verify.Broken: pb.Verdict_VERDICT_BROKEN,
	verify.VerdictNoWord: pb.Verdict_VERDICT_UNCHECKED, verify.Skipped: pb.Verdict_VERDICT_SKIPPED,
}

// Verify checks every invariant on a stable cut. Two at once wait for each other.
func (h *Reports) Verify(ctx context.Context, req *pb.VerifyRequest) (*pb.VerifyResponse, error) {
	var f fields
	campaign := f.optionalCampaign(req.GetCampaignId())
	if err := f.err(); err != nil {
		return nil, err
	}
	if err := h.known(campaign); err != nil {
		return nil, err
	}
	select {
	case h.turn <- struct{}{}:
		defer func() { <-h.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	result, err := h.verifier.Verify(ctx, campaign)
	if err != nil {
		return nil, err
	}
	return h.render(result), nil
}

func (h *Reports) render(result verify.Result) *pb.VerifyResponse {
	out := &pb.VerifyResponse{Ok: result.Holds(), Revision: result.Revision}
	for _, c := range result.Checks {
		out.Checks = append(out.Checks, &pb.Check{Invariant: string(c.Invariant), Verdict: verdicts[c.Verdict], Detail: c.Detail})
	}
	for _, b := range result.Breaches {
		h.breaches.WithLabelValues(string(b.Invariant)).Inc()
		out.Breaches = append(out.Breaches, &pb.Breach{Invariant: string(b.Invariant), CampaignId: b.Campaign, SkuId: b.SKU, CellId: b.Cell, Detail: b.Detail})
	}
	for _, u := range result.Unchecked {
		out.Unchecked = append(out.Unchecked, &pb.Unchecked{Invariant: string(u.Invariant), What: u.What, Why: u.Why})
	}
	return out
}

// known refuses a campaign that nobody created; "" is all of them.
func (h *Reports) known(campaign ids.CampaignID) error {
	if campaign == "" {
		return nil
	}
	if _, known := h.cells.View.Snapshot().Campaign(campaign); !known {
		return unknownCampaign(campaign)
	}
	return nil
}

func (f *fields) optionalCampaign(s string) ids.CampaignID {
	if s == "" {
		return ""
	}
	return f.campaign(s)
}

// GetSales answers the books of a campaign and every cell's stock rows.
func (h *Reports) GetSales(ctx context.Context, req *pb.GetSalesRequest) (*pb.GetSalesResponse, error) {
	var f fields
	campaign := f.campaign(req.GetCampaignId())
	if err := f.err(); err != nil {
		return nil, err
	}
	if err := h.known(campaign); err != nil {
		return nil, err
	}
	s := h.cells.View.Snapshot()
	out := &pb.GetSalesResponse{}
	held := map[ids.CellID]bool{}
	for _, b := range s.Books(campaign) {
		out.Books = append(out.Books, convert.Book(b))
		for _, a := range b.Allocations {
			held[a.Cell] = true
		}
	}
	answers := each(ctx, h.reader, s.Cells(), func(ctx context.Context, shard *shards.Snapshot) ([]shards.Stock, error) {
		return shard.Stocks(ctx, string(campaign))
	})
	for _, a := range answers {
		if a.err != nil && held[a.cell.Spec.ID] {
			out.Stocks = append(out.Stocks, &pb.CellStock{CellId: string(a.cell.Spec.ID), Unreachable: a.err.Error()})
		}
		for _, row := range a.value {
			out.Stocks = append(out.Stocks, &pb.CellStock{CellId: string(a.cell.Spec.ID), Stock: stockFacts(row)})
		}
	}
	return out, nil
}

// stockFacts gives a row of a shard; its columns are bounded by the shard itself.
func stockFacts(s shards.Stock) *pb.StockFacts {
	return &pb.StockFacts{
		CampaignId: s.Campaign, SkuId: s.SKU, Granted: int32(s.Granted), Available: int32(s.Available), Reserved: int32(s.Reserved), Confirmed: int32(s.Confirmed),
		Released: s.Released, Version: s.Version, AdjustmentVersion: s.AdjustmentVersion, LastNumber: s.LastNumber,
		LastAdjustmentId: s.LastAdjustmentID, BookRecordId: s.BookRecordID,
	}
}

// maxKeys bounds one question about requests.
const maxKeys = 1_000

// orderStates are the words of a shard on the wire.
var orderStates = map[string]pb.OrderState{
	"PENDING_PAYMENT": pb.OrderState_ORDER_STATE_PENDING_PAYMENT, "PAID": pb.OrderState_ORDER_STATE_PAID, "CLOSED": pb.OrderState_ORDER_STATE_CLOSED,
}

// requestFacts is one shard's answer about requests.
type requestFacts struct {
	rows         []shards.Resolved
	messagesFrom int64
}

// ResolveRequests answers what all shards know of requests.
func (h *Reports) ResolveRequests(ctx context.Context, req *pb.ResolveRequestsRequest) (*pb.ResolveRequestsResponse, error) {
	var f fields
	if n := len(req.GetKeys()); n < 1 || n > maxKeys {
		f.add("keys", "must have 1 to 1000 entries")
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	keys := make([]shards.RequestKey, len(req.GetKeys()))
	out := &pb.ResolveRequestsResponse{Unreachable: map[string]string{}, MessagesFrom: map[string]int64{}}
	for i, k := range req.GetKeys() {
		keys[i] = shards.RequestKey{Campaign: k.GetCampaignId(), SKU: k.GetSkuId(), User: k.GetUserId(), Request: k.GetRequestId()}
		out.Requests = append(out.Requests, &pb.ResolvedRequest{Key: k})
	}
	answers := each(ctx, h.reader, h.cells.View.Snapshot().Cells(), func(ctx context.Context, shard *shards.Snapshot) (requestFacts, error) {
		rows, err := shard.Resolve(ctx, keys)
		fence, fenceErr := shard.Fence(ctx)
		return requestFacts{rows, fence.MessagesFrom}, errors.Join(err, fenceErr)
	})
	for _, a := range answers {
		cell := string(a.cell.Spec.ID)
		if a.err != nil {
			out.Unreachable[cell] = a.err.Error()
			continue
		}
		out.MessagesFrom[cell] = a.value.messagesFrom
		for _, r := range a.value.rows {
			out.Requests[r.Index].Rows = append(out.Requests[r.Index].Rows, &pb.ResolvedRow{
				CellId: cell, ReservationId: r.Reservation, Outcome: r.Outcome, Reason: r.Reason, OrderId: r.OrderID,
				OrderState: orderStates[r.OrderState], FenceVersion: r.FenceVersion, Quantity: int32(r.Quantity),
			})
		}
	}
	return out, nil
}
