package api

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/ids"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Bounds of one trace.
const (
	maxAdjustments = 16 // whose records are looked for
	maxArchives    = 50 // settled campaigns whose journals are searched for an id that no store names a campaign for
)

// journaled adds what the journal has of the adjustments of the story: the one that was
// asked for, and those that the shards' facts name. What left etcd is read from the
// archive of its campaign.
func (h *Reports) journaled(ctx context.Context, out *pb.TraceResponse, req *pb.TraceRequest) {
	of := adjustments(req, out.GetEvents())
	s := h.cells.View.Snapshot()
	for _, id := range slices.Sorted(maps.Keys(of)) {
		record, found := s.RecordOf(id)
		if !found {
			record, found = s.Record(id)
		}
		if !found {
			record, found = h.fromArchive(ctx, out, s, id, of[id])
		}
		if found {
			out.Events = append(out.Events, recordEvents(s, record, id)...)
		}
	}
}

// adjustments are the ids to look for, with their campaigns where a shard names them.
func adjustments(req *pb.TraceRequest, events []*pb.TraceEvent) map[string]string {
	out := map[string]string{}
	if req.GetKind() == "adjustment" {
		out[req.GetId()] = ""
	}
	for _, e := range events {
		var id string
		switch {
		case e.GetStore() == "adjustment":
			id = e.GetFields()["adjustment_id"]
		case e.GetStore() == "ledger" && (e.GetWhat() == "GRANT" || e.GetWhat() == "RETURN" || e.GetWhat() == "SEAL"):
			id = e.GetFields()["business_no"]
		}
		if _, known := out[id]; id != "" && (known || len(out) < maxAdjustments) {
			out[id] = e.GetFields()["campaign_id"]
		}
	}
	return out
}

// fromArchive looks for a record in the archived journals: of its campaign, or else of
// the campaigns that settled last. What could not be searched is named.
func (h *Reports) fromArchive(ctx context.Context, out *pb.TraceResponse, s view.Snapshot, id, campaign string) (core.Record, bool) {
	var settled []core.Campaign
	for _, c := range s.Campaigns() {
		if len(c.Journal()) > 0 && (campaign == "" || campaign == string(c.Spec.ID)) {
			settled = append(settled, c)
		}
	}
	slices.SortFunc(settled, func(a, b core.Campaign) int {
		return cmp.Or(b.SettledAt.Compare(a.SettledAt), cmp.Compare(a.Spec.ID, b.Spec.ID))
	})
	if n := len(settled); n > maxArchives {
		out.Unreachable["archive"] = fmt.Sprintf("the journals of the %d campaigns that settled last were searched, of %d", maxArchives, n)
		settled = settled[:maxArchives]
	}
	for _, c := range settled {
		if h.history == nil {
			out.Unreachable["archive of "+string(c.Spec.ID)] = "this replica reads no archive"
			continue
		}
		records, err := h.history.Records(ctx, c, 0, 1<<30)
		if err != nil {
			out.Unreachable["archive of "+string(c.Spec.ID)] = err.Error()
			continue
		}
		for _, r := range records {
			if r.ID == id || r.Find(id) >= 0 {
				return r, true
			}
		}
	}
	return core.Record{}, false
}

// recordEvents are the record's word on one adjustment, or on all when the id is the
// record's own, and the operation that it belongs to while etcd has it.
func recordEvents(s view.Snapshot, r core.Record, id string) (out []*pb.TraceEvent) {
	fields := func() map[string]string {
		return map[string]string{
			"record_id": r.ID, "campaign_id": string(r.Key.Campaign), "sku_id": string(r.Key.SKU), "actor": r.Actor, "reason": r.Reason,
			"operation_id": r.OperationID, "book_version": strconv.FormatInt(r.BookVersion, 10), "create_revision": strconv.FormatInt(r.CreateRevision, 10),
		}
	}
	for _, a := range r.Adjustments {
		if a.ID != id && r.ID != id {
			continue
		}
		f := fields()
		f["adjustment_id"], f["units"], f["number"], f["fence_version"] = a.ID, a.Units.String(), strconv.FormatInt(a.Number, 10), strconv.FormatInt(a.FenceVersion, 10)
		what := fmt.Sprintf("%s %s", a.Kind, a.State)
		if a.Outcome != 0 {
			what += fmt.Sprintf(" %s", a.Outcome)
		}
		out = append(out, event(r, a.Cell, "journal", what, f))
	}
	if len(out) == 0 {
		out = append(out, event(r, "", "journal", "record", fields()))
	}
	if op, known := s.Operation(r.OperationID); known {
		out = append(out, &pb.TraceEvent{At: timestamppb.New(op.StartedAt), Store: "operation", What: op.Kind + " " + op.State.String(), Fields: map[string]string{
			"operation_id": op.ID, "actor": op.Actor, "subject": op.Subject, "reason": op.Reason, "detail": op.Detail,
		}})
	}
	return out
}

func event(r core.Record, cell ids.CellID, store, what string, fields map[string]string) *pb.TraceEvent {
	for name, v := range fields {
		if v == "" {
			delete(fields, name)
		}
	}
	return &pb.TraceEvent{At: timestamppb.New(r.At), CellId: string(cell), Store: store, What: what, Fields: fields}
}
