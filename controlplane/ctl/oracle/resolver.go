package oracle

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"github.com/cellquota/cellquota/edge/load/history"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// maxKeys is how many requests one call may ask for.
const maxKeys = 1000

// Resolver asks the shards through ReportService. It is a history.Resolver; not for concurrent use.
type Resolver struct {
	reports pb.ReportServiceClient
	from    map[string]int64
}

// New makes a Resolver.
func New(reports pb.ReportServiceClient) *Resolver {
	return &Resolver{reports: reports, from: map[string]int64{}}
}

// MessagesFrom is the cell's messages_from as the newest answer said.
func (r *Resolver) MessagesFrom(cell string) int64 { return r.from[cell] }

// Resolve answers one entry per key, in order; unreachable names cells that did not answer.
func (r *Resolver) Resolve(ctx context.Context, keys []history.Key) (rows [][]history.Row, unreachable map[string]string, err error) {
	unreachable = map[string]string{}
	for len(keys) > 0 {
		part := keys[:min(len(keys), maxKeys)]
		keys = keys[len(part):]
		in := &pb.ResolveRequestsRequest{}
		for _, k := range part {
			in.Keys = append(in.Keys, &pb.RequestKey{CampaignId: k.Campaign, SkuId: k.SKU, UserId: k.User, RequestId: k.Request})
		}
		out, err := r.reports.ResolveRequests(ctx, in)
		if err != nil {
			return nil, nil, err
		}
		if len(out.GetRequests()) != len(part) {
			return nil, nil, fmt.Errorf("asked for %d requests, %d were answered", len(part), len(out.GetRequests()))
		}
		maps.Copy(unreachable, out.GetUnreachable())
		maps.Copy(r.from, out.GetMessagesFrom())
		for _, request := range out.GetRequests() {
			rows = append(rows, fromProto(request.GetRows()))
		}
	}
	return rows, unreachable, nil
}

func fromProto(rows []*pb.ResolvedRow) []history.Row {
	var out []history.Row
	for _, w := range rows {
		out = append(out, history.Row{
			Cell: w.GetCellId(), Reservation: w.GetReservationId(), Outcome: w.GetOutcome(), Reason: w.GetReason(),
			Order: w.GetOrderId(), State: orderState(w.GetOrderState()), Quantity: w.GetQuantity(),
		})
	}
	return out
}

func orderState(s pb.OrderState) string {
	if s == pb.OrderState_ORDER_STATE_UNSPECIFIED {
		return ""
	}
	return strings.TrimPrefix(s.String(), "ORDER_STATE_")
}
