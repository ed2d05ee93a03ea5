package controlplane

import (
	"context"
	"fmt"
	"time"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/link"
	"github.com/cellquota/cellquota/controlplane/report/shards"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
)

// staleView is the age at which a replica says that it is not ready: it answers
// reads from a past that long ago.
const staleView = 10 * time.Second

// ready tells whether the replica serves: its view is loaded and current, and
// somebody leads.
func (p *parts) ready() (bool, map[string]string) {
	reasons := map[string]string{}
	s := p.view.Snapshot()
	if s.Revision() == 0 {
		reasons["view"] = "nothing was loaded from etcd yet"
	} else if age := s.Age(); age > staleView {
		reasons["view"] = fmt.Sprintf("last known to be current %s ago", age.Round(time.Second))
	}
	if _, led := s.Leader(); !led {
		reasons["leader"] = "no replica leads"
	}
	if why := p.planner.Restored(); why != "" {
		reasons["restored"] = why // serves reads, grants nothing
	}
	return len(reasons) == 0 || len(reasons) == 1 && reasons["restored"] != "", reasons
}

// liveness shows the hub's processes to the cells' handlers.
type liveness struct {
	hub   *link.Hub
	clock clock.Clock
}

// Process implements api.Liveness.
func (l liveness) Process(cell ids.CellID, instance string) (lease time.Duration, reporter bool, faults []string, ok bool) {
	for _, p := range l.hub.Processes(cell) {
		if p.ID == instance {
			return p.LeaseRemaining, p.Reporter, p.Faults, true
		}
	}
	return 0, false, nil, false
}

// Reported implements api.Liveness.
func (l liveness) Reported(cell ids.CellID, from int64) (age time.Duration, atRisk int64, ok bool) {
	at, atRisk, ok := l.hub.Reported(cell, from)
	return max(0, l.clock.Now().Sub(at)), atRisk, ok
}

// reachable asks a shard as the reader.
type reachable struct{ reader *shards.Reader }

// Reachable implements api.Shards.
func (r reachable) Reachable(ctx context.Context, spec core.CellSpec) error {
	s, err := r.reader.Snapshot(ctx, spec.Shard.ReaderDSNFile)
	if err != nil {
		return err
	}
	s.Close(ctx)
	return nil
}

// shardStocks reads one stock row as the reader.
type shardStocks struct{ reader *shards.Reader }

// Stock implements quota.Shards.
func (r shardStocks) Stock(ctx context.Context, spec core.CellSpec, key core.BookKey) (core.StockFacts, error) {
	s, err := r.reader.Snapshot(ctx, spec.Shard.ReaderDSNFile)
	if err != nil {
		return core.StockFacts{}, err
	}
	defer s.Close(ctx)
	rows, err := s.Stocks(ctx, string(key.Campaign))
	if err != nil {
		return core.StockFacts{}, err
	}
	for _, row := range rows {
		if row.SKU == string(key.SKU) {
			return stockFacts(key, row)
		}
	}
	return core.StockFacts{Key: key}, nil
}

// Stocks implements drain.Shards.
func (r shardStocks) Stocks(ctx context.Context, spec core.CellSpec) ([]core.StockFacts, error) {
	s, err := r.reader.Snapshot(ctx, spec.Shard.ReaderDSNFile)
	if err != nil {
		return nil, err
	}
	defer s.Close(ctx)
	rows, err := s.Stocks(ctx, "")
	if err != nil {
		return nil, err
	}
	out := make([]core.StockFacts, len(rows))
	for i, row := range rows {
		key := core.BookKey{Campaign: ids.CampaignID(row.Campaign), SKU: ids.SKUID(row.SKU)}
		if out[i], err = stockFacts(key, row); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func stockFacts(key core.BookKey, row shards.Stock) (core.StockFacts, error) {
	out := core.StockFacts{Key: key, Version: row.Version, AdjustmentVersion: row.AdjustmentVersion, LastNumber: row.LastNumber, LastAdjustmentID: row.LastAdjustmentID, BookRecordID: row.BookRecordID}
	for _, units := range []struct {
		to   *quantity.Quantity
		from int64
	}{{&out.Granted, row.Granted}, {&out.Available, row.Available}, {&out.Reserved, row.Reserved}, {&out.Confirmed, row.Confirmed}} {
		var err error
		if *units.to, err = quantity.New(units.from); err != nil {
			return core.StockFacts{}, fmt.Errorf("%w: %s: %w", core.ErrBroken, key, err)
		}
	}
	return out, nil
}

// usages shows the hub's reports to the room that ends campaigns.
type usages struct{ *link.Hub }

// Held implements settle.Cells.
func (u usages) Held(cell ids.CellID, key core.BookKey) (core.HeldFacts, bool) {
	in, ok := u.UsageOf(cell, key)
	return core.HeldFacts{FenceVersion: in.FenceVersion, Granted: in.Stock.Granted, Confirmed: in.Stock.Confirmed}, ok
}
