package api

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/report/shards"
	"github.com/cellquota/cellquota/internal/ids"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// maxEvents bounds a trace.
const maxEvents = 1_000

// Trace tells the story of an id over all shards, what the mirror of its cell holds of
// the requests that it concerns, if a process of it lives, and what the journal, in etcd
// or in the archive, has of its adjustments. What is gone is named, and the rest is told.
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
		h.mirrored(ctx, out, a.cell, subjects(req, a.value))
	}
	h.journaled(ctx, out, req)
	slices.SortStableFunc(out.Events, func(a, b *pb.TraceEvent) int {
		return cmp.Compare(a.GetAt().AsTime().UnixNano(), b.GetAt().AsTime().UnixNano()) // what has no time comes first
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

// maxSubjects bounds the requests that one cell's mirror is asked about.
const maxSubjects = 32

// subjects are the requests that a mirror can be asked about: what was given, and those
// that the shard's facts name.
func subjects(req *pb.TraceRequest, events []shards.Event) (out []*pb.LookupMirrorRequestRequest) {
	given := &pb.LookupMirrorRequestRequest{CampaignId: req.GetCampaignId(), SkuId: req.GetSkuId(), UserId: req.GetUserId()}
	switch req.GetKind() {
	case "request":
		given.RequestId = req.GetId()
	case "user":
		given.UserId = req.GetId()
	}
	add := func(q *pb.LookupMirrorRequestRequest) {
		whole := q.GetCampaignId() != "" && q.GetSkuId() != "" && q.GetUserId() != "" && q.GetRequestId() != ""
		if whole && !slices.ContainsFunc(out, func(o *pb.LookupMirrorRequestRequest) bool { return proto.Equal(o, q) }) {
			out = append(out, q)
		}
	}
	for _, e := range events {
		field := func(name string) string { v, _ := e.Fields[name].(string); return v }
		add(&pb.LookupMirrorRequestRequest{CampaignId: field("campaign_id"), SkuId: field("sku_id"), UserId: field("user_id"), RequestId: field("request_id")})
	}
	add(given) // which no shard may know
	return out
}

// mirrored adds what the cell's mirror holds of the requests.
func (h *Reports) mirrored(ctx context.Context, out *pb.TraceResponse, cell core.Cell, asks []*pb.LookupMirrorRequestRequest) {
	name := "mirror of " + string(cell.Spec.ID)
	for i, q := range asks {
		if i == maxSubjects {
			out.Unreachable[name] = fmt.Sprintf("%d of %d requests were asked for: name a campaign, SKU or request", maxSubjects, len(asks))
			return
		}
		if err := h.mirror(ctx, out, cell, q); err != nil {
			out.Unreachable[name] = err.Error()
			return
		}
	}
}

// mirror adds what the cell's mirror holds of one request.
func (h *Reports) mirror(ctx context.Context, out *pb.TraceResponse, cell core.Cell, q *pb.LookupMirrorRequestRequest) error {
	id := string(cell.Spec.ID)
	var got *pb.LookupMirrorRequestResponse
	err := (Mirrors{h.cells.View, h.cells.Dial}).ask(ctx, cell.Spec.ID, func(ctx context.Context, c pb.CellFactsServiceClient) (err error) {
		got, err = c.LookupMirrorRequest(ctx, q)
		return err
	})
	if err != nil {
		return err
	}
	fields := map[string]string{"request_id": q.GetRequestId(), "user_id": q.GetUserId()}
	at := admitted(got.GetFields())
	if got.GetPresent() {
		maps.Copy(fields, got.GetFields())
		out.Events = append(out.Events, &pb.TraceEvent{At: at, CellId: id, Store: "mirror", What: "record", Fields: fields})
	}
	if got.GetInStream() {
		out.Events = append(out.Events, &pb.TraceEvent{At: at, CellId: id, Store: "stream", What: "not acknowledged by the log", Fields: map[string]string{"request_id": q.GetRequestId()}})
	}
	return nil
}

// admitted is when the mirror admitted the request, by Redis; nil where it does not say.
func admitted(fields map[string]string) *timestamppb.Timestamp {
	ms, err := strconv.ParseInt(fields["admitted_at_ms"], 10, 64)
	if err != nil || ms <= 0 {
		return nil
	}
	return timestamppb.New(time.UnixMilli(ms))
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
