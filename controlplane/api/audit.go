package api

import (
	"context"

	"github.com/cellquota/cellquota/controlplane/audit"
	"github.com/cellquota/cellquota/controlplane/convert"
	"github.com/cellquota/cellquota/controlplane/core"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// ListAuditEvents answers a page of the audit, newest first. A filter may make a
// page short, even empty, with a token to go on.
func (h *Reports) ListAuditEvents(ctx context.Context, req *pb.ListAuditEventsRequest) (*pb.ListAuditEventsResponse, error) {
	var f fields
	size, before := f.pageSize(req.GetPageSize()), f.after(req.GetPageToken())
	if _, known := core.TrailTime(before); before != "" && !known {
		f.add("page_token", "must be the next_page_token of an earlier answer")
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	records, next, err := h.audit.Page(ctx, before, size, audit.Filter{Actor: req.GetActor(), Subject: req.GetSubject()})
	if err != nil {
		return nil, err
	}
	out := &pb.ListAuditEventsResponse{}
	for _, t := range records {
		out.Events = append(out.Events, convert.Audit(t.Audit))
	}
	if next != "" {
		out.NextPageToken = pageToken(next)
	}
	return out, nil
}
