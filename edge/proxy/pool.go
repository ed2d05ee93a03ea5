package proxy

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"

	"google.golang.org/grpc"

	"github.com/cellquota/cellquota/edge/limit"
	"github.com/cellquota/cellquota/internal/telemetry"
	cq "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// peer is one process of a cell: a connection and its lanes.
type peer struct {
	addr  string
	conn  *grpc.ClientConn
	door  Door
	lanes []*lane
	stop  context.CancelFunc
}

// up reports whether a stream to the process is open.
func (p *peer) up() bool {
	return slices.ContainsFunc(p.lanes, func(l *lane) bool { return l.up.Load() })
}

// pool is what this edge has open to one cell. It is immutable but for its counters.
type pool struct {
	peers    []*peer
	lanes    []*lane
	inflight *limit.Inflight
	turn     *atomic.Uint32
}

// lane picks an open lane, in turn; nil: none is open.
func (p *pool) lane() *lane {
	n := uint32(len(p.lanes))
	if n == 0 {
		return nil
	}
	start := p.turn.Add(1)
	for i := range n {
		if l := p.lanes[(start+i)%n]; l.up.Load() {
			return l
		}
	}
	return nil
}

// peer picks a process for one call: one with an open stream if there is any.
func (p *pool) peer() *peer {
	n := uint32(len(p.peers))
	if n == 0 {
		return nil
	}
	start := p.turn.Add(1)
	for i := range n {
		if one := p.peers[(start+i)%n]; one.up() {
			return one
		}
	}
	return p.peers[start%n]
}

// Door is how one call, not an ask, reaches a cell.
type Door struct {
	Admissions cq.AdmissionServiceClient
	Orders     cq.OrderServiceClient
	Entries    cq.EntryServiceClient
}

// maxPeers bounds how many processes of one cell an edge keeps streams to.
const maxPeers = 16

// rebuild returns the pool for these addresses: what is there already is kept, what is new is
// opened, and the peers that are no longer named are returned to be retired.
func (c *Cells) rebuild(old *pool, cell *cellAddresses) (next *pool, retired []*peer) {
	next = &pool{inflight: limit.NewInflight(c.set.InflightMax), turn: new(atomic.Uint32)}
	if old != nil {
		next.inflight, next.turn = old.inflight, old.turn
		retired = slices.Clone(old.peers)
	}
	for _, addr := range cell.addrs[:min(len(cell.addrs), maxPeers)] {
		if i := slices.IndexFunc(retired, func(p *peer) bool { return p.addr == addr }); i >= 0 {
			next.add(retired[i])
			retired = slices.Delete(retired, i, i+1)
			continue
		}
		p, err := c.open(cell, addr)
		if err != nil {
			c.log.Error("address of a cell refused", slog.String(telemetry.Event, "cell_address_refused"),
				slog.String(telemetry.CellID, string(cell.id)), slog.Any(telemetry.Error, err))
			continue
		}
		next.add(p)
	}
	return next, retired
}

func (p *pool) add(one *peer) {
	p.peers = append(p.peers, one)
	p.lanes = append(p.lanes, one.lanes...)
}
