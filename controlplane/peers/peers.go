package peers

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/telemetry"
)

// Store keeps the record. store.Store implements it; the errors are its own.
type Store interface {
	GrantLease(ctx context.Context, ttl time.Duration) (int64, error)
	KeepLease(ctx context.Context, lease int64) (time.Duration, error)
	RevokeLease(ctx context.Context, lease int64) error
	RegisterReplica(ctx context.Context, r core.Replica) error
}

// Config of one replica.
type Config struct {
	// Address is how others reach this replica.
	Address string
	// TTL of its record: how long a dead replica is still listed, at least 1 s.
	TTL time.Duration
}

// Deps are what Peers is given.
type Deps struct {
	Store Store
	View  *view.View
	// Dial reaches another replica.
	Dial  func(addr string) (*grpc.ClientConn, error)
	Clock clock.Clock
	Log   *slog.Logger
}

// Peers is safe for concurrent use. Make it with New, run Run.
type Peers struct {
	cfg Config
	Deps

	mu    sync.Mutex
	conns map[string]*grpc.ClientConn // nil after Run
}

// New makes a replica's part; it registers nothing before Run.
func New(cfg Config, d Deps) *Peers {
	return &Peers{cfg: cfg, Deps: d, conns: map[string]*grpc.ClientConn{}}
}

// Self is this replica's address.
func (p *Peers) Self() string { return p.cfg.Address }

// Others lists the other registered replicas, in order of their addresses.
func (p *Peers) Others() []core.Replica {
	var out []core.Replica
	for _, r := range p.View.Snapshot().Replicas() {
		if r.Address != p.cfg.Address {
			out = append(out, r)
		}
	}
	return out
}

var errStopped = errors.New("peers: this replica stops")

// Conn gives the connection to a replica, which is kept.
func (p *Peers) Conn(address string) (grpc.ClientConnInterface, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conns == nil {
		return nil, errStopped
	}
	if conn, ok := p.conns[address]; ok {
		return conn, nil
	}
	conn, err := p.Dial(address)
	if err != nil {
		return nil, err
	}
	p.conns[address] = conn
	return conn, nil
}

// Run keeps this replica registered until ctx ends, and returns nil then.
func (p *Peers) Run(ctx context.Context) error {
	defer p.close()
	for ctx.Err() == nil {
		err := p.registered(ctx)
		if ctx.Err() == nil {
			p.Log.WarnContext(ctx, "this replica is not registered", append([]any{telemetry.Event, "replica_unregistered"}, telemetry.Failure(err, rpcstatus.Reason(err), true)...)...)
		}
		_ = p.Clock.Sleep(ctx, p.cfg.TTL/4) // ends early with ctx, which ends the loop
	}
	return nil
}

// registered is one lease from grant to end.
func (p *Peers) registered(ctx context.Context) error {
	lease, err := p.Store.GrantLease(ctx, p.cfg.TTL)
	if err != nil {
		return err
	}
	defer func() {
		gone, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = p.Store.RevokeLease(gone, lease) // it ends by itself otherwise
	}()
	err = p.Store.RegisterReplica(ctx, core.Replica{Address: p.cfg.Address, ProgramVersion: telemetry.Version(), Lease: lease})
	if err != nil {
		return err
	}
	for {
		if err := p.Clock.Sleep(ctx, p.cfg.TTL/4); err != nil {
			return err
		}
		p.forget()
		// While etcd does not answer the lease may live on; when it is gone, so is
		// the record.
		if _, err := p.Store.KeepLease(ctx, lease); errors.Is(err, store.ErrLeaseGone) {
			return err
		}
	}
}

// forget closes connections to replicas that are gone.
func (p *Peers) forget() {
	known := map[string]bool{}
	s := p.View.Snapshot()
	for _, r := range s.Replicas() {
		known[r.Address] = true
	}
	if leader, led := s.Leader(); led {
		known[leader.Address] = true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for address, conn := range p.conns {
		if !known[address] {
			_ = conn.Close()
			delete(p.conns, address)
		}
	}
}

func (p *Peers) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range p.conns {
		_ = conn.Close()
	}
	p.conns = nil
}
