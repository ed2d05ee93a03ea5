package api

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/report/shards"
	"github.com/cellquota/cellquota/internal/ids"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// maxEvents bounds a trace.
const maxEvents = 1_000

// Trace tells the story of an id over all shards, and what the mirror of its cell
// holds of the request that it belongs to, if a process of it lives.
func (h *Reports) Trace(ctx context.Context, req *pb.TraceRequest) (*pb.TraceResponse, error) {
	cells, err := h.traced(req)
	if err != nil {
		return nil, err
	}
	answers := each(ctx, h.reader, cells, func(ctx context.Context, shard *shards.Snapshot) ([]shards.Event, error) {
		return shard.Trace(ctx, req.GetKind(), req.GetId(), req.GetCampaignId(), req.GetSkuId(), req.GetUserId())
	})
	out := &pb.TraceResponse{Unreachable: map[string]string{}}
	for _, a := range answers {
		cell := string(a.cell.Spec.ID)
		if a.err != nil {
			out.Unreachable["shard of "+cell] = a.err.Error()
		}
		for _, e := range a.value {
			out.Events = append(out.Events, &pb.TraceEvent{At: timestamppb.New(e.At), CellId: cell, Store: e.Store, What: e.What, Fields: texts(e.Fields)})
		}
		h.mirrored(ctx, out, a.cell, subject(req, a.value))
	}
	slices.SortStableFunc(out.Events, func(a, b *pb.TraceEvent) int {
		return cmp.Compare(a.GetAt().AsTime().UnixNano(), b.GetAt().AsTime().UnixNano()) // the mirror, which has no time, comes first
	})
	out.Events = out.Events[:min(len(out.Events), maxEvents)]
	return out, nil
}

// traced gives the cells that can know of the id: the one that a reservation, order,
// token or admission event names, else all.
func (h *Reports) traced(req *pb.TraceRequest) ([]core.Cell, error) {
	var f fields
	s := h.cells.View.Snapshot()
	cells := s.Cells()
	var named ids.CellID
	var err error
	switch req.GetKind() {
	case "request":
		_, err = ids.ParseRequestID(req.GetId())
	case "reservation":
		named, err = cellOfReservation(req.GetId())
	case "order":
		named, err = cellOfOrder(req.GetId())
	case "payment":
		_, err = ids.ParsePaymentID(req.GetId()) // a refund's too
	case "user":
		_, err = ids.ParseUserID(req.GetId())
	case "adjustment":
		_, err = ids.ParseOperationID("id", req.GetId())
	case "event":
		named, err = cellOfEvent(req.GetId())
	case "token":
		named, err = cellOfToken(req.GetId())
	case "entry":
		err = number(req.GetId())
	default:
		f.add("kind", `must be "request", "reservation", "order", "payment", "event", "token", "user", "adjustment" or "entry"`)
	}
	f.refused(err)
	if err := f.err(); err != nil || named == "" {
		return cells, err
	}
	cell, known := s.Cell(named)
	if !known {
		return nil, unknownCell(named)
	}
	return []core.Cell{cell}, nil
}

func cellOfReservation(s string) (ids.CellID, error) {
	id, err := ids.ParseReservation(s)
	if err != nil {
		return "", err
	}
	return id.Cell(), nil
}

func cellOfOrder(s string) (ids.CellID, error) {
	id, err := ids.ParseOrder(s)
	if err != nil {
		return "", err
	}
	return id.Cell(), nil
}

// cellOfEvent takes an admission's event, whose id names its reservation, or one of
// cellquota.events: outbox-CELL-ROW.
func cellOfEvent(s string) (ids.CellID, error) {
	if rest, ok := strings.CutPrefix(s, "outbox-"); ok {
		cell, row := rest[:max(0, strings.LastIndex(rest, "-"))], rest[strings.LastIndex(rest, "-")+1:]
		if err := number(row); err != nil {
			return "", err
		}
		return ids.ParseCellID(cell)
	}
	id, err := ids.ParseEventID(s)
	if err != nil {
		return "", err
	}
	return id.Cell(), nil
}

// cellOfToken takes a serial as a grant mints it: CELL.tDIGEST-NUMBER.
func cellOfToken(s string) (ids.CellID, error) {
	cell, serial, ok := strings.Cut(s, ".t")
	if !ok || len(serial) != len("0123456789abcdef0123-000001") {
		return "", &ids.Error{Field: "token_id", Rule: "must be CELL.tDIGEST-NUMBER"}
	}
	return ids.ParseCellID(cell)
}

// number takes an id that a shard counts: each cell has one of its own.
func number(s string) error {
	n, err := strconv.ParseUint(s, 10, 63)
	if err != nil || strconv.FormatUint(n, 10) != s {
		return &ids.Error{Field: "id", Rule: "must end with a number without leading zeros"}
	}
	return nil
}

// subject is the request that a mirror can be asked about: what was given, or
// what a shard's first fact names.
func subject(req *pb.TraceRequest, events []shards.Event) *pb.LookupMirrorRequestRequest {
	q := &pb.LookupMirrorRequestRequest{CampaignId: req.GetCampaignId(), SkuId: req.GetSkuId(), UserId: req.GetUserId()}
	if req.GetKind() == "request" {
		q.RequestId = req.GetId()
	}
	for _, e := range events {
		fill := func(into *string, name string) {
			if v, ok := e.Fields[name].(string); ok && *into == "" {
				*into = v
			}
		}
		fill(&q.CampaignId, "campaign_id")
		fill(&q.SkuId, "sku_id")
		fill(&q.UserId, "user_id")
		fill(&q.RequestId, "request_id")
	}
	if q.GetCampaignId() == "" || q.GetSkuId() == "" || q.GetUserId() == "" || q.GetRequestId() == "" {
		return nil
	}
	return q
}

// mirrored adds what the cell's mirror holds of the request.
func (h *Reports) mirrored(ctx context.Context, out *pb.TraceResponse, cell core.Cell, q *pb.LookupMirrorRequestRequest) {
	if q == nil {
		return
	}
	id := string(cell.Spec.ID)
	var got *pb.LookupMirrorRequestResponse
	err := (Mirrors{h.cells.View, h.cells.Dial}).ask(ctx, cell.Spec.ID, func(ctx context.Context, c pb.CellFactsServiceClient) (err error) {
		got, err = c.LookupMirrorRequest(ctx, q)
		return err
	})
	switch {
	case err != nil:
		out.Unreachable["mirror of "+id] = err.Error()
		return
	case got.GetPresent():
		out.Events = append(out.Events, &pb.TraceEvent{CellId: id, Store: "mirror", What: "record", Fields: got.GetFields()})
	}
	if got.GetInStream() {
		out.Events = append(out.Events, &pb.TraceEvent{CellId: id, Store: "stream", What: "not acknowledged by the log"})
	}
}

// texts gives a fact's fields as people read them.
func texts(fields map[string]any) map[string]string {
	out := make(map[string]string, len(fields))
	for name, v := range fields {
		switch v := v.(type) {
		case nil:
		case float64:
			out[name] = strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.6f", v), "0"), ".")
		default:
			out[name] = fmt.Sprint(v)
		}
	}
	return out
}
