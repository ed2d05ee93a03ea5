package link

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/planner"
	"github.com/cellquota/cellquota/internal/ids"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// ack is a process's word on one campaign.
type ack struct {
	version int64
	ready   bool
	detail  string
}

// acknowledge keeps the word on the highest version that was named.
func (s *stream) acknowledge(a *pb.CampaignAck) {
	id, err := ids.ParseCampaignID(a.GetCampaignId())
	if err != nil {
		s.logged("campaign_ack", err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	known, have := s.acks[id]
	if have && known.version > a.GetVersion() || !have && len(s.acks) >= maxAcks {
		return
	}
	s.acks[id] = ack{a.GetVersion(), a.GetReady(), a.GetDetail()}
}

// behind says in words why the process does not serve a version yet; "": it does.
func (s *stream) behind(campaign ids.CampaignID, version int64) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, ok := s.acks[campaign]
	switch {
	case !ok:
		return "has not acknowledged"
	case a.version < version:
		return fmt.Sprintf("serves version %d", a.version)
	case !a.ready:
		return fmt.Sprintf("is not ready for version %d: %s", a.version, a.detail)
	}
	return ""
}

// Reporter implements planner.Cells.
func (h *Hub) Reporter(cell ids.CellID) (planner.Reporter, bool) {
	r := h.present()
	if r == nil {
		return planner.Reporter{}, false
	}
	s := r.reporter(cell)
	if s == nil {
		return planner.Reporter{}, false
	}
	return s.asReporter(), true
}

// Send implements planner.Cells.
func (h *Hub) Send(_ context.Context, cell ids.CellID, stream uint64, d *pb.Directive) error {
	r := h.present()
	if r == nil {
		return planner.ErrNoReporter
	}
	s := r.reporter(cell)
	if s == nil || s.id != stream || !s.queue(&pb.LinkResponse{Kind: &pb.LinkResponse_Directive{Directive: d}}) {
		return planner.ErrNoReporter
	}
	return nil
}

// CampaignReady implements planner.Cells. A process that holds a lease, but has
// no stream to this leader yet, is missing too.
func (h *Hub) CampaignReady(campaign ids.CampaignID, version int64, cells []ids.CellID) []string {
	snapshot := h.View.Snapshot()
	var missing []string
	for _, cell := range cells {
		linked := map[string]bool{}
		for _, s := range h.streamsOf(cell) {
			linked[s.instance.ID] = true
			if why := s.behind(campaign, version); why != "" {
				missing = append(missing, fmt.Sprintf("%s/%s %s", cell, s.instance.ID, why))
			}
		}
		for _, i := range snapshot.Instances(cell) {
			if !linked[i.ID] {
				linked[i.ID] = true
				missing = append(missing, fmt.Sprintf("%s/%s is not linked to this leader", cell, i.ID))
			}
		}
		if len(linked) == 0 {
			missing = append(missing, fmt.Sprintf("%s has no live process", cell))
		}
	}
	return missing
}

func (h *Hub) streamsOf(cell ids.CellID) []*stream {
	if r := h.present(); r != nil {
		return r.of(cell)
	}
	return nil
}

// Process is one process that is linked to this leader.
type Process struct {
	core.Instance
	LeaseRemaining time.Duration
	Reporter       bool
	Faults         []string // of readiness, as its last keep-alive named them
	Keys           []string // signing keys whose bytes it has, "USE/KID"
	Heard          bool     // a keep-alive came: Keys is what it has, not nothing yet
}

// Processes gives the processes of a cell that are linked to this leader, in the
// order in which they came; none on a replica that does not lead.
func (h *Hub) Processes(cell ids.CellID) []Process {
	var out []Process
	now := h.Clock.Now()
	reporter, _ := h.Reporter(cell)
	for _, s := range h.streamsOf(cell) {
		p := Process{Instance: s.instance, LeaseRemaining: s.remaining(now), Reporter: reporter.Stream == s.id}
		s.mu.Lock()
		p.Lease, p.Faults, p.Keys, p.Heard = s.lease, slices.Clone(s.faults), slices.Clone(s.keys), s.heard
		s.mu.Unlock()
		out = append(out, p)
	}
	return out
}
