package recovery

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/planner"
	"github.com/cellquota/cellquota/fencing"
	"github.com/cellquota/cellquota/fencing/fencer"
	"github.com/cellquota/cellquota/internal/ids"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Shard is one connection to a cell's shard under the fencer's role.
// fencer.Fencer implements it; the errors are its own.
type Shard interface {
	RaiseTerm(ctx context.Context, term fencing.Term) error
	Facts(ctx context.Context) (fencer.Facts, error)
	Adjustments(ctx context.Context, sku fencing.SKU, after string, limit int) ([]fencing.Applied, error)
	Close(ctx context.Context) error
}

// Open connects to the shard of a cell. fencer.ErrUnreachable.
type Open func(ctx context.Context, spec core.CellSpec) (Shard, error)

// facts is what a shard knows, in the words of core.
type facts struct {
	cell   ids.CellID
	row    fencer.Row
	stocks []core.StockFacts
	rules  map[ids.CampaignID]*pb.CampaignRules
	seals  []seal
	told   fencer.Switch
	moved  map[string]int64 // by campaign: the newest route version that moved a bucket
}

// seal is what one fence took out of one SKU.
type seal struct {
	key     core.BookKey
	version int64 // of the fence
	units   quantity.Quantity
}

// Witness reads silent shards for a new leader. It implements planner.Witness.
type Witness struct{ Open Open }

// Witness implements planner.Witness. planner.ErrTermAhead: the shard knows a
// higher term, or another leader of this count.
func (w Witness) Witness(ctx context.Context, spec core.CellSpec, term core.Term) (planner.Shard, error) {
	shard, err := w.Open(ctx, spec)
	if err != nil {
		return planner.Shard{}, err
	}
	defer func() { _ = shard.Close(context.WithoutCancel(ctx)) }()
	f, err := read(ctx, shard, spec.ID, &term)
	if errors.Is(err, fencer.ErrTermRefused) {
		return planner.Shard{}, fmt.Errorf("%w: %w", planner.ErrTermAhead, err)
	}
	return planner.Shard{Cell: spec.ID, FenceVersion: f.row.Version.Int64(), Stocks: f.stocks}, err
}

// read raises the shard's term row, where a term is given, and then reads what the
// shard knows. fencer.ErrTermRefused with the row when it knows a higher one.
func read(ctx context.Context, shard Shard, cell ids.CellID, term *core.Term) (facts, error) {
	var refused error
	if term != nil {
		refused = shard.RaiseTerm(ctx, fencing.Term{Count: term.Count, ID: term.ID})
		if refused != nil && !errors.Is(refused, fencer.ErrTermRefused) {
			return facts{}, refused
		}
	}
	got, err := shard.Facts(ctx)
	if err != nil {
		return facts{}, err
	}
	if got.Row.Cell != string(cell) {
		return facts{row: got.Row}, fmt.Errorf("%w: it is cell %s's", fencer.ErrOtherCell, got.Row.Cell)
	}
	out := facts{cell: cell, row: got.Row, rules: map[ids.CampaignID]*pb.CampaignRules{}, told: got.Switch, moved: got.Moved}
	for _, s := range got.Seals {
		units, err := quantity.New(s.Units)
		if err != nil {
			return facts{}, fmt.Errorf("what fence %s sealed in the shard of %s: %w", s.Version, cell, err)
		}
		out.seals = append(out.seals, seal{key: keyOf(s.SKU), version: s.Version.Int64(), units: units})
	}
	for _, s := range got.Stocks {
		stock, err := stockOf(s)
		if err != nil {
			return facts{}, err
		}
		out.stocks = append(out.stocks, stock)
	}
	for _, r := range got.Rules {
		rules := &pb.CampaignRules{}
		if err := proto.Unmarshal(r.Message, rules); err != nil {
			return facts{}, fmt.Errorf("rules of campaign %s in the shard of %s: %w", r.Campaign, cell, err)
		}
		out.rules[ids.CampaignID(r.Campaign)] = rules
	}
	return out, refused
}

func stockOf(s fencer.Stock) (core.StockFacts, error) {
	var errs []error
	units := func(n int64) quantity.Quantity {
		q, err := quantity.New(n)
		errs = append(errs, err)
		return q
	}
	out := core.StockFacts{
		Key:     keyOf(s.SKU),
		Granted: units(s.Granted), Available: units(s.Available), Reserved: units(s.Reserved), Confirmed: units(s.Confirmed),
		Released: s.Released, Version: s.Version, AdjustmentVersion: s.AdjustmentVersion, LastNumber: s.LastNumber,
		LastAdjustmentID: s.LastAdjustmentID, BookRecordID: s.BookRecordID,
	}
	return out, errors.Join(errs...)
}

func keyOf(sku fencing.SKU) core.BookKey {
	return core.BookKey{Campaign: ids.CampaignID(sku.Campaign), SKU: ids.SKUID(sku.SKU)}
}

func skuOf(key core.BookKey) fencing.SKU {
	return fencing.SKU{Campaign: string(key.Campaign), SKU: string(key.SKU)}
}
