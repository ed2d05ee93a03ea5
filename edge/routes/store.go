package routes

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-memdb"

	"github.com/cellquota/cellquota/edge/route"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/signed"
	"github.com/cellquota/cellquota/internal/telemetry"
	cq "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Store holds the copy. One goroutine applies, any number read.
type Store struct {
	db      *memdb.MemDB
	clock   clock.Clock
	log     *slog.Logger
	metrics *metrics
	current atomic.Pointer[Snapshot]
	ready   chan struct{} // closed with the first snapshot
}

// newStore returns an empty store.
func newStore(clk clock.Clock, log *slog.Logger, m *metrics) (*Store, error) {
	db, err := memdb.NewMemDB(schema())
	if err != nil {
		return nil, fmt.Errorf("routes: %w", err)
	}
	return &Store{db: db, clock: clk, log: log, metrics: m, ready: make(chan struct{})}, nil
}

// Snapshot is the newest state, or nil before the first one.
func (s *Store) Snapshot() *Snapshot { return s.current.Load() }

// Ready is closed once there is a snapshot.
func (s *Store) Ready() <-chan struct{} { return s.ready }

// apply takes one message, all of it or nothing, and publishes what came of it. Only a broken
// schema makes it fail.
func (s *Store) apply(m *cq.WatchRoutesResponse) error {
	txn := s.db.Txn(true)
	defer txn.Abort()
	if err := s.edit(txn, m); err != nil {
		return fmt.Errorf("routes: revision %d: %w", m.GetRevision(), err)
	}
	txn.Commit()
	first := s.current.Load() == nil
	s.current.Store(&Snapshot{Revision: m.GetRevision(), At: s.clock.Now(), txn: s.db.Txn(false)})
	s.metrics.applied(m.GetRevision(), s.clock.Now())
	if first {
		close(s.ready)
	}
	return nil
}

func (s *Store) edit(txn *memdb.Txn, m *cq.WatchRoutesResponse) error {
	if m.GetFull() {
		for _, table := range []string{campaigns, cells, keys} {
			if _, err := txn.DeleteAll(table, byID); err != nil {
				return err
			}
		}
	}
	for _, id := range m.GetRemovedCampaigns() {
		if err := remove(txn, campaigns, id); err != nil {
			return err
		}
	}
	for _, id := range m.GetRemovedCells() {
		if err := remove(txn, cells, id); err != nil {
			return err
		}
	}
	if err := s.editCampaigns(txn, m.GetCampaigns()); err != nil {
		return err
	}
	if err := s.editCells(txn, m.GetCells()); err != nil {
		return err
	}
	return editKeys(txn, m.GetKeys())
}

// editCampaigns stores what can be read; the older version of what cannot is taken away too, since
// going by old rules or old homes is worse than not selling.
func (s *Store) editCampaigns(txn *memdb.Txn, in []*cq.CampaignRoute) error {
	for _, raw := range in {
		c, err := campaign(raw)
		if err != nil {
			id := raw.GetSpec().GetCampaignId()
			s.quarantine("campaign", slog.String(telemetry.CampaignID, id), err)
			if err := remove(txn, campaigns, id); err != nil {
				return err
			}
			continue
		}
		if err := txn.Insert(campaigns, c); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) editCells(txn *memdb.Txn, in []*cq.CellRoute) error {
	for _, raw := range in {
		c, err := cell(raw)
		if err != nil {
			s.quarantine("cell", slog.String(telemetry.CellID, raw.GetCellId()), err)
			continue
		}
		s.keepAddresses(c)
		if err := txn.Insert(cells, c); err != nil {
			return err
		}
	}
	return nil
}

// keepAddresses gives a cell that may sell, but of which no process holds a lease, the addresses it
// had. A lapsed lease says nothing about whether the process sells (architecture §4): it does, while
// only the control plane is gone. Where it is dead, no stream to it opens, which is answer enough.
// A cell that may not sell is not asked at addresses that somebody else may have by now.
func (s *Store) keepAddresses(c *route.Cell) {
	if c.Standing != route.Selling || len(c.Addresses) > 0 {
		return
	}
	if old := s.current.Load().Cell(c.ID); old != nil {
		c.Addresses = old.Addresses
	}
}

func editKeys(txn *memdb.Txn, in []*cq.KeyInfo) error {
	if len(in) == 0 {
		return nil
	}
	if _, err := txn.DeleteAll(keys, byID); err != nil {
		return err
	}
	for _, k := range in {
		if err := txn.Insert(keys, keyOf(k)); err != nil {
			return err
		}
	}
	return nil
}

func keyOf(k *cq.KeyInfo) Key {
	return Key{Use: k.GetUse(), Status: signed.Status{KID: k.GetKid(), State: signed.State(k.GetState()), NotBefore: time.UnixMilli(k.GetNotBeforeMs())}}
}

func (s *Store) quarantine(what string, id slog.Attr, err error) {
	s.metrics.quarantined.Inc()
	s.log.Error("route quarantined", slog.String(telemetry.Event, "route_quarantined"), slog.String("what", what),
		id, slog.Any(telemetry.Error, err))
}

func remove(txn *memdb.Txn, table, id string) error {
	old, err := txn.First(table, byID, id)
	if err != nil || old == nil {
		return err
	}
	return txn.Delete(table, old)
}
