package store

import (
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/cellquota/cellquota/controlplane/convert"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/ids"
	storev1 "github.com/cellquota/cellquota/proto/cellquota/store/v1"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

func encodeCampaign(c core.Campaign) proto.Message {
	return &storev1.Campaign{
		Spec: convert.Spec(c.Spec), State: pb.CampaignState(c.State), Version: c.Version, Owner: c.Owner, PublishedAt: convert.Time(c.PublishedAt),
		OperationId: c.OperationID, BookedSkus: words(c.BookedSKUs), PausedSkus: words(c.PausedSKUs), FinalSkus: words(c.FinalSKUs),
		CreatedByOperation: c.CreatedBy, CancelledByOperation: c.CancelledBy, SettledAt: convert.Time(c.SettledAt),
		LastOperation: c.LastOperation, LastParameters: c.LastParameters, Archive: archived(c.Archive), ClosedAt: convert.Time(c.ClosedAt),
		LotterySeed: c.LotterySeed, Draws: convert.Draws(c.Draws), DrawOperation: c.DrawOperation,
	}
}

func decodeCampaign(kv *mvccpb.KeyValue) (core.Campaign, error) {
	var m storev1.Campaign
	if err := decode(kv.Value, &m); err != nil {
		return core.Campaign{}, err
	}
	var r reader
	return core.Campaign{
		Spec: keep(&r, m.GetSpec(), convert.FromSpec), State: core.CampaignState(small(m.GetState())), Version: m.GetVersion(), Owner: m.GetOwner(),
		PublishedAt: convert.FromTime(m.GetPublishedAt()), OperationID: m.GetOperationId(), BookedSKUs: typed[ids.SKUID](m.GetBookedSkus()),
		PausedSKUs: typed[ids.SKUID](m.GetPausedSkus()), FinalSKUs: typed[ids.SKUID](m.GetFinalSkus()), CreatedBy: m.GetCreatedByOperation(), ModRevision: kv.ModRevision,
		CancelledBy: m.GetCancelledByOperation(), SettledAt: convert.FromTime(m.GetSettledAt()),
		LastOperation: m.GetLastOperation(), LastParameters: m.GetLastParameters(), Archive: fromArchived(m.GetArchive()), ClosedAt: convert.FromTime(m.GetClosedAt()),
		LotterySeed: m.GetLotterySeed(), Draws: convert.FromDraws(m.GetDraws()), DrawOperation: m.GetDrawOperation(),
	}, r.err
}

func archived(objects []core.ArchiveObject) []*storev1.ArchiveObject {
	var out []*storev1.ArchiveObject
	for _, o := range objects {
		out = append(out, &storev1.ArchiveObject{Name: o.Name, Sha256: o.SHA256, Size: o.Size})
	}
	return out
}

func fromArchived(objects []*storev1.ArchiveObject) []core.ArchiveObject {
	var out []core.ArchiveObject
	for _, o := range objects {
		out = append(out, core.ArchiveObject{Name: o.GetName(), SHA256: o.GetSha256(), Size: o.GetSize()})
	}
	return out
}

func encodeRoute(route core.Route) proto.Message {
	return &storev1.Route{CampaignId: string(route.Campaign), Version: route.Version, Domains: convert.Domains(route.Domains)}
}

func decodeRoute(kv *mvccpb.KeyValue) (core.Route, error) {
	var m storev1.Route
	if err := decode(kv.Value, &m); err != nil {
		return core.Route{}, err
	}
	domains, err := convert.FromDomains(m.GetDomains())
	if err != nil {
		err = fmt.Errorf("%w: %v", core.ErrBroken, err) //nolint:errorlint // the text is what helps
	}
	return core.Route{Campaign: ids.CampaignID(m.GetCampaignId()), Version: m.GetVersion(), Domains: domains, ModRevision: kv.ModRevision}, err
}

func encodeOperation(o core.Operation) proto.Message {
	return withDrawing(&storev1.Operation{
		Operation: convert.Operation(o), Parameters: o.Parameters, Reclaim: o.Reclaim, TopUp: o.TopUp,
		InstanceGroup: o.InstanceGroup, FenceVersion: o.FenceVersion, Version: o.Version,
		SaleLimit: o.SaleLimit.Int32(), Moves: convert.Moves(o.Moves), ConfirmedLimits: convert.Limits(o.Limits), NeedsApproval: o.NeedsApproval, Beacon: o.Beacon,
		DrawingSku: string(o.Drawing),
		Handover:   encodeHandover(o.Handover),
	}, o)
}

// withDrawing adds the evidence of a draw under way.
func withDrawing(m *storev1.Operation, o core.Operation) *storev1.Operation {
	if o.Drawing != "" {
		m.DrawingEvidence = archived([]core.ArchiveObject{o.DrawingEvidence})[0]
	}
	return m
}

func decodeOperation(kv *mvccpb.KeyValue) (core.Operation, error) {
	var m storev1.Operation
	err := decode(kv.Value, &m)
	o := convert.FromOperation(m.GetOperation())
	o.Parameters, o.Reclaim, o.TopUp, o.InstanceGroup = m.GetParameters(), m.GetReclaim(), m.GetTopUp(), m.GetInstanceGroup()
	o.FenceVersion, o.Version, o.ModRevision, o.CreateRevision = m.GetFenceVersion(), m.GetVersion(), kv.ModRevision, kv.CreateRevision
	o.NeedsApproval, o.Beacon = m.GetNeedsApproval(), m.GetBeacon()
	if o.Drawing = ids.SKUID(m.GetDrawingSku()); o.Drawing != "" {
		o.DrawingEvidence = fromArchived([]*storev1.ArchiveObject{m.GetDrawingEvidence()})[0]
	}
	if err != nil {
		return o, err
	}
	var r reader
	o.SaleLimit, o.Moves = r.units(m.GetSaleLimit()), keep(&r, m.GetMoves(), convert.FromMoves)
	o.Handover = keep(&r, m.GetHandover(), decodeHandover)
	o.Limits = keep(&r, m.GetConfirmedLimits(), convert.FromLimits)
	return o, r.err
}

func encodeHandover(h core.Handover) *storev1.Handover {
	if h.From == "" {
		return nil // an operation of another kind
	}
	return &storev1.Handover{
		Domain: h.Domain, FromCell: string(h.From), ToCell: string(h.To), BucketFrom: int32(h.First), BucketTo: int32(h.Last),
		ExpectedVersion: h.ExpectedVersion, RouteVersion: h.RouteVersion, Closed: convert.Buckets(h.Domain, h.Closed).GetRanges(),
	}
}

func decodeHandover(m *storev1.Handover) (core.Handover, error) {
	if m == nil {
		return core.Handover{}, nil
	}
	span, err := convert.FromRanges(m.GetFromCell(), []*pb.BucketRange{{BucketFrom: m.GetBucketFrom(), BucketTo: m.GetBucketTo()}})
	if err != nil {
		return core.Handover{}, err
	}
	closed, err := convert.FromRanges(m.GetFromCell(), m.GetClosed())
	if err != nil {
		return core.Handover{}, err
	}
	return core.Handover{
		Domain: m.GetDomain(), From: ids.CellID(m.GetFromCell()), To: ids.CellID(m.GetToCell()), First: span[0].From, Last: span[0].To,
		ExpectedVersion: m.GetExpectedVersion(), RouteVersion: m.GetRouteVersion(), Closed: closed,
	}, nil
}

func words[T ~string](in []T) []string {
	var out []string
	for _, v := range in {
		out = append(out, string(v))
	}
	return out
}

func typed[T ~string](in []string) []T {
	var out []T
	for _, v := range in {
		out = append(out, T(v))
	}
	return out
}
