package api

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/cellquota/cellquota/controlplane/access"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/intent"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/transport"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Routes is RoutingService, and knows which edge has acknowledged what.
type Routes struct {
	pb.UnimplementedRoutingServiceServer
	View *view.View
	// Peers are the other replicas, whose edges count as well; nil: there are none.
	Peers Peers
	// Acked is called after an edge acknowledged or left; nil: nobody asks.
	Acked func()
	// StaleAfter is the age of the view from which an edge is sent to another replica;
	// 0: never. Clock is asked for it.
	StaleAfter time.Duration
	// Memory is how long an edge counts as alive after its stream ended; 0: not at all.
	Memory time.Duration
	// Clock is asked for both; nil where both are 0.
	Clock clock.Clock
	// Intent accepts handovers; Reader counts whom they would bring.
	Intent *intent.Service
	Reader ShardReader

	mu    sync.Mutex
	edges map[string]*follower
	away  map[string]absent // of edges that are in no stream of this replica
}

// follower is one edge's stream.
type follower struct {
	acked int64
	keys  []string // "USE/KID"
}

// absent is an edge whose stream ended; it serves on with what it knows.
type absent struct {
	keys []string
	left time.Time
}

// maxAway bounds the edges that are remembered; the oldest is forgotten first.
const maxAway = 1_000

// maxKeyNames bounds the keys kept of an edge.
const maxKeyNames = 3 * core.MaxKeys

// WatchRoutes sends a full snapshot, then changes, each with the revision of the
// view that it brings the edge to; the edge acknowledges revisions. Once the view is
// older than StaleAfter the stream ends, rpcstatus.ErrUnavailable, so that the edge
// asks another replica; one that comes while it is, since no other serves it better,
// is served the past for that long.
func (h *Routes) WatchRoutes(stream grpc.BidiStreamingServer[pb.WatchRoutesRequest, pb.WatchRoutesResponse]) error {
	hello, err := stream.Recv()
	if err != nil {
		return err
	}
	if len(hello.GetEdgeId()) < 1 || len(hello.GetEdgeId()) > 128 {
		return rpcstatus.Invalid(rpcstatus.Violation{Field: "edge_id", Rule: "must be 1 to 128 bytes"})
	}
	if p, ok := transport.PrincipalFrom(stream.Context()); !ok || p.Name != access.Edge+"/"+hello.GetEdgeId() {
		return fmt.Errorf("%w: %s is not edge %s", rpcstatus.ErrPermissionDenied, p.Name, hello.GetEdgeId())
	}
	if _, err := h.View.WaitFor(stream.Context(), 1); err != nil {
		return err
	}
	me := h.join(hello)
	defer h.leave(hello.GetEdgeId(), me)
	ended := make(chan error, 1)
	go h.acknowledgements(stream, me, ended) // ends with the stream, which ends when this returns
	return h.follow(stream, ended)
}

// follow sends until the stream ends.
func (h *Routes) follow(stream grpc.BidiStreamingServer[pb.WatchRoutesRequest, pb.WatchRoutesResponse], ended <-chan error) error {
	var sent routes
	aging := h.aging()
	defer aging.stop()
	for {
		changed := h.View.Changed()
		now := routesOf(h.View.Snapshot())
		if m := now.since(sent); m != nil {
			if err := stream.Send(m); err != nil {
				return err
			}
		}
		sent = now
		select {
		case <-changed:
		case <-aging.look:
			if age := h.View.Snapshot().Age(); aging.over(age) {
				return fmt.Errorf("%w: this replica's view is %s old: ask another one", rpcstatus.ErrUnavailable, age.Round(time.Millisecond))
			}
		case err := <-ended:
			return err
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// aging looks, a few times within StaleAfter, how old the view is under one stream.
type aging struct {
	after time.Duration
	began time.Time
	clock clock.Clock
	look  <-chan time.Time // nil: never
	stop  func()
}

func (h *Routes) aging() aging {
	if h.StaleAfter <= 0 {
		return aging{stop: func() {}}
	}
	tick := h.Clock.NewTicker(max(h.StaleAfter/looksPerStale, time.Millisecond))
	return aging{after: h.StaleAfter, began: h.Clock.Now(), clock: h.Clock, look: tick.C(), stop: tick.Stop}
}

// looksPerStale is how exact StaleAfter is kept.
const looksPerStale = 4

// over: the view is too old, and the stream has had its time.
func (a aging) over(age time.Duration) bool {
	return age >= a.after && a.clock.Now().Sub(a.began) >= a.after
}

func (h *Routes) acknowledgements(stream grpc.BidiStreamingServer[pb.WatchRoutesRequest, pb.WatchRoutesResponse], me *follower, ended chan<- error) {
	for {
		m, err := stream.Recv()
		if err != nil {
			ended <- nil // the edge is gone, or the handler is
			return
		}
		h.mu.Lock()
		me.acked, me.keys = max(me.acked, m.GetAckedRevision()), named(m)
		h.mu.Unlock()
		h.tell()
	}
}

func named(m *pb.WatchRoutesRequest) []string {
	return m.GetKeys()[:min(len(m.GetKeys()), maxKeyNames)]
}

func (h *Routes) join(hello *pb.WatchRoutesRequest) *follower {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.edges == nil {
		h.edges = map[string]*follower{}
	}
	me := &follower{keys: named(hello)}
	delete(h.away, hello.GetEdgeId())
	h.edges[hello.GetEdgeId()] = me // a second stream of one edge takes the place of the first
	return me
}

func (h *Routes) leave(edge string, me *follower) {
	h.mu.Lock()
	if h.edges[edge] == me {
		delete(h.edges, edge)
		h.remember(edge, me.keys)
	}
	h.mu.Unlock()
	h.tell()
}

// remember keeps what an edge had that left, and forgets who left too long ago.
func (h *Routes) remember(edge string, keys []string) {
	if h.Memory <= 0 {
		return
	}
	if h.away == nil {
		h.away = map[string]absent{}
	}
	now := h.Clock.Now()
	h.away[edge] = absent{keys: keys, left: now}
	oldest := edge
	for id, a := range h.away {
		switch {
		case now.Sub(a.left) >= h.Memory:
			delete(h.away, id)
		case a.left.Before(h.away[oldest].left):
			oldest = id
		}
	}
	if len(h.away) > maxAway {
		delete(h.away, oldest)
	}
}

// Holders gives the edges that count as alive, connected or not, with their keys.
func (h *Routes) Holders() (out []*pb.KeyHolder) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, e := range h.edges {
		out = append(out, &pb.KeyHolder{Name: access.Edge + "/" + id, Keys: e.keys})
	}
	for id, a := range h.away {
		if since := h.Clock.Now().Sub(a.left); since < h.Memory {
			out = append(out, &pb.KeyHolder{Name: access.Edge + "/" + id, Keys: a.keys, AwayMs: max(1, since.Milliseconds())})
		}
	}
	return out
}

func (h *Routes) tell() {
	if h.Acked != nil {
		h.Acked()
	}
}

// Edges gives the connected edges with the revision each acknowledged.
func (h *Routes) Edges() map[string]int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make(map[string]int64, len(h.edges))
	for id, e := range h.edges {
		out[id] = e.acked
	}
	return out
}

// Keys gives the connected edges with the keys whose bytes each has.
func (h *Routes) Keys() map[string][]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make(map[string][]string, len(h.edges))
	for id, e := range h.edges {
		out[id] = e.keys
	}
	return out
}

// Behind lists the connected edges, of this replica and of others, that have not
// acknowledged a view with this version of the campaign, and the replicas that do not
// say which edges they have. A replica that is gone is waited for no longer than its
// lease lives. It implements planner.Edges.
func (h *Routes) Behind(ctx context.Context, campaign ids.CampaignID, version int64) []string {
	c, known := h.View.Snapshot().Campaign(campaign)
	edges := h.Edges()
	var out []string
	if h.Peers != nil {
		replicas, theirs := everyOther(ctx, h.Peers)
		for _, r := range replicas {
			if !r.GetAnswers() {
				out = append(out, "replica "+r.GetAddress()+" does not say which edges it has")
			}
		}
		for id, acked := range theirs {
			edges[id] = max(edges[id], acked)
		}
	}
	for id, acked := range edges {
		if !known || c.Version < version || acked < c.ModRevision {
			out = append(out, "edge "+id)
		}
	}
	slices.Sort(out)
	return out
}

// LookupHome answers the home cell of one user.
func (h *Routes) LookupHome(_ context.Context, req *pb.LookupHomeRequest) (*pb.LookupHomeResponse, error) {
	var f fields
	id := f.campaign(req.GetCampaignId())
	user, err := ids.ParseUserID(req.GetUserId())
	f.refused(err)
	if err := f.err(); err != nil {
		return nil, err
	}
	route, known := h.View.Snapshot().Route(id)
	if !known {
		return nil, unknownCampaign(id)
	}
	cell, bucket, found := route.Home(req.GetDomain(), user)
	if !found {
		return nil, rpcstatus.With(fmt.Errorf("%w: %s has no traffic domain %q", rpcstatus.ErrNotFound, id, req.GetDomain()), nil, nil, 0)
	}
	return &pb.LookupHomeResponse{CellId: string(cell), Bucket: int32(bucket), RouteVersion: route.Version}, nil
}

// shownToEdges: an edge learns of a campaign when all its books exist, so that it
// can acknowledge before anything is on sale.
func shownToEdges(c core.Campaign) bool {
	return c.State.HasBooks() && (c.State != core.CampaignPublishing || c.FullyBooked())
}

// sortedKeys gives a map's keys in order, for messages that do not wobble.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
