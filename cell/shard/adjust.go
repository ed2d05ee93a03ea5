package shard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/telemetry"
	eventsv1 "github.com/cellquota/cellquota/proto/cellquota/events/v1"
)

// AdjustmentKind is GRANT or RETURN; a SEAL is the fence's own.
type AdjustmentKind string

// The kinds that arrive numbered.
const (
	Grant  AdjustmentKind = "GRANT"
	Return AdjustmentKind = "RETURN"
)

// AdjustmentOutcome is what the shard decided. It is decided once.
type AdjustmentOutcome string

// The outcomes.
const (
	Applied AdjustmentOutcome = "APPLIED"
	Refused AdjustmentOutcome = "REFUSED" // a return that no longer fits; 0 units
	Voided  AdjustmentOutcome = "VOIDED"  // given up before it was applied; 0 units
)

// maxUnits bounds units everywhere (contract, section 4).
const maxUnits = 1_000_000_000

// Adjustment is one numbered move of units between the book and this shard.
type Adjustment struct {
	ID           string
	Campaign     ids.CampaignID
	SKU          ids.SKUID
	FenceVersion int64 // it was numbered under; must be the shard's own
	Number       int64
	Kind         AdjustmentKind
	Units        int32 // 1 to 1,000,000,000; ignored for a void
	Void         bool  // take the number with 0 units unless it was applied already
	TermCount    int64
	TermID       string
	BookRecordID string
}

// AdjustmentResult is the outcome, the same on every repeat, with the stock row as it is now.
type AdjustmentResult struct {
	Outcome  AdjustmentOutcome
	Stock    StockFacts
	Replayed bool // it had been decided before
}

// ApplyAdjustment applies, refuses or voids exactly the next number of its sequence, or answers what
// was decided before under the same id (so apply and void of one adjustment exclude each other:
// whichever commits first decides). Errors: *NumberGap; ErrConflict (same id, other contents);
// ErrFenced (other fence version); ErrTermLower; ErrInvalid; ErrNotFound (rules come first).
//
// An unknown commit is resolved here: the stock row is locked, which waits for the old transaction,
// and then the adjustment is looked for by its id.
func (s *Store) ApplyAdjustment(ctx context.Context, a Adjustment) (AdjustmentResult, error) {
	if err := a.check(); err != nil {
		return AdjustmentResult{}, err
	}
	var out AdjustmentResult
	err := s.resolved(ctx, func() error {
		return s.inTx(ctx, "apply_adjustment", needSettle, func(ctx context.Context, t tx) error {
			var err error
			out, err = s.adjust(ctx, t, a)
			return err
		})
	})
	if err == nil && out.Outcome == Refused && !out.Replayed {
		s.metrics.stockFailures.WithLabelValues("return_refused").Inc()
	}
	return out, err
}

// resolved calls a verb again while its commit is unknown; the verb must be idempotent by its ids
// and lock what it would change before it looks.
func (s *Store) resolved(ctx context.Context, verb func() error) error {
	var err error
	for attempt := 1; attempt <= unknownCommitTries; attempt++ {
		if err = verb(); !errors.Is(err, ErrUnknownCommit) {
			return err
		}
		s.log.Warn("commit outcome unknown; looking by id", telemetry.Event, "shard_unknown_commit", telemetry.Error, err)
		if s.clock.Sleep(ctx, backoff(attempt)) != nil {
			return err
		}
	}
	return err
}

func (a Adjustment) check() error {
	switch {
	case a.ID == "" || len(a.ID) > 256:
		return fmt.Errorf("%w: adjustment_id must have 1 to 256 bytes", ErrInvalid)
	case a.Kind != Grant && a.Kind != Return:
		return fmt.Errorf("%w: kind must be GRANT or RETURN", ErrInvalid)
	case a.Number < 1:
		return fmt.Errorf("%w: number must be at least 1", ErrInvalid)
	case !a.Void && (a.Units < 1 || a.Units > maxUnits):
		return fmt.Errorf("%w: units must be 1 to %d", ErrInvalid, maxUnits)
	}
	return nil
}

// adjust is the transaction: term, stock row locked, the id looked for, then the number.
func (s *Store) adjust(ctx context.Context, t tx, a Adjustment) (AdjustmentResult, error) {
	if _, err := t.Exec(ctx, sql("term_raise"), a.TermCount, a.TermID); err != nil {
		return AdjustmentResult{}, err
	}
	stock, err := t.lockStock(ctx, a.Campaign, a.SKU)
	if err != nil {
		return AdjustmentResult{}, err
	}
	known, found, err := t.adjustment(ctx, a.ID)
	if err != nil {
		return AdjustmentResult{}, err
	}
	if found {
		return AdjustmentResult{Outcome: known.outcome, Stock: stock, Replayed: true}, known.same(a)
	}
	switch {
	case a.FenceVersion != t.writer.FenceVersion:
		return AdjustmentResult{}, fmt.Errorf("%w: adjustment %s is of fence version %d, the shard is at %d",
			ErrConflict, a.ID, a.FenceVersion, t.writer.FenceVersion)
	case stock.AdjustmentVersion != t.writer.FenceVersion:
		return AdjustmentResult{}, fmt.Errorf("%w: stock row of %s is numbered under fence version %d, the shard is at %d",
			ErrShardBehind, a.SKU, stock.AdjustmentVersion, t.writer.FenceVersion)
	case a.Number != stock.LastNumber+1:
		return AdjustmentResult{}, &NumberGap{Last: stock.LastNumber, Got: a.Number}
	}
	return t.decide(ctx, a, stock)
}

// mayLeave tells whether the units of a return can leave; in TOKEN mode each has a free row.
func (t tx) mayLeave(ctx context.Context, a Adjustment, stock StockFacts) (bool, error) {
	if stock.Available < a.Units {
		return false, nil
	}
	lacking, err := t.lacksRows(ctx, a.Campaign, a.SKU, a.Units)
	if err != nil || lacking == 0 {
		return err == nil, err
	}
	return false, t.noteMissing(ctx, needs{skuKey{a.Campaign, a.SKU}: lacking})
}

func (t tx) lockStock(ctx context.Context, campaign ids.CampaignID, sku ids.SKUID) (StockFacts, error) {
	rows, err := t.Query(ctx, sql("stock_lock_one"), campaign, sku)
	if err != nil {
		return StockFacts{}, err
	}
	stock, err := pgx.CollectExactlyOneRow(rows, scanStock)
	if errors.Is(err, pgx.ErrNoRows) {
		return stock, fmt.Errorf("%w: stock of campaign %s, SKU %s: its rules come first", ErrNotFound, campaign, sku)
	}
	return stock, err
}

// decide writes the outcome under its number; whatever it is, the number is used up.
func (t tx) decide(ctx context.Context, a Adjustment, stock StockFacts) (AdjustmentResult, error) {
	outcome, units := Applied, a.Units
	leaves := true
	if a.Kind == Return && !a.Void {
		var err error
		if leaves, err = t.mayLeave(ctx, a, stock); err != nil {
			return AdjustmentResult{}, err
		}
	}
	switch {
	case a.Void:
		outcome, units = Voided, 0
	case !leaves:
		outcome, units = Refused, 0
	case a.Kind == Grant && int64(stock.Granted)+int64(a.Units) > maxUnits:
		return AdjustmentResult{}, fmt.Errorf("%w: units: %d granted and %d more are above %d", ErrInvalid, stock.Granted, a.Units, maxUnits)
	}
	tag, err := t.Exec(ctx, sql("adjustment_insert"), a.ID, a.Campaign, a.SKU, a.FenceVersion, a.Number, a.Kind, units, a.asked(), outcome)
	if err != nil {
		return AdjustmentResult{}, err
	}
	if err := exactly("adjustments", tag.RowsAffected(), 1); err != nil {
		return AdjustmentResult{}, err
	}
	delta := units
	if a.Kind == Return {
		delta = -units
	}
	if outcome == Applied {
		if err := t.unhurried(ctx, units); err != nil {
			return AdjustmentResult{}, err
		}
		m := moves{{campaign: a.Campaign, sku: a.SKU, action: string(a.Kind), businessNo: a.ID, available: delta}}
		if err := t.apply(ctx, m, "adjustment", "control-plane"); err != nil {
			return AdjustmentResult{}, err
		}
	}
	rows, err := t.Query(ctx, sql("adjustment_number"), a.Campaign, a.SKU, a.FenceVersion, a.Number, a.ID, a.BookRecordID)
	if err != nil {
		return AdjustmentResult{}, err
	}
	after, err := pgx.CollectExactlyOneRow(rows, scanStock)
	if err != nil {
		return AdjustmentResult{}, err
	}
	t.marks[skuKey{a.Campaign, a.SKU}] = after.Version
	return AdjustmentResult{Outcome: outcome, Stock: after}, t.leave(ctx, a.effect(outcome, delta, after.Version))
}

// A move of more units than manyRows may take muchTime: in TOKEN mode each is a row to mint or to seal,
// and on a busy machine 100,000 take longer than an order's statement may.
const (
	manyRows = 10_000
	muchTime = time.Minute
)

// unhurried raises the bound on statements for the rest of the transaction.
func (t tx) unhurried(ctx context.Context, units int32) error {
	if units <= manyRows {
		return nil
	}
	_, err := t.Exec(ctx, sql("statement_bound"), millis(muchTime))
	return err
}

// asked is what the order asked for; a void asks for nothing.
func (a Adjustment) asked() int32 {
	if a.Void {
		return 0
	}
	return a.Units
}

// effect tells the mirror. A refused return had perhaps been debited there first: its give-back has an
// id of its own, "credit:" and the adjustment's (the mirror's own name for it, so that a credit that
// came directly counts as this one). It is taken only where the debit is held; a void names no units,
// so the mirror gives back what it had debited.
func (a Adjustment) effect(outcome AdjustmentOutcome, delta int32, version int64) []outRow {
	id := a.ID
	switch {
	case outcome == Applied:
	case a.Kind == Return:
		id, delta = "credit:"+a.ID, a.asked()
	default:
		return nil
	}
	return []outRow{{
		target: targetMirror, aggregate: "stock/" + string(a.Campaign) + "/" + string(a.SKU), eventType: "adjustment",
		campaign: a.Campaign, sku: a.SKU,
		payload: &eventsv1.MirrorEffect{
			EffectId: id, CampaignId: string(a.Campaign), SkuId: string(a.SKU), StockDelta: delta, StockVersion: version, AggregateVersion: version,
		},
	}}
}

// RecordBookChange keeps the id of the newest change of the book that moved no units here.
func (s *Store) RecordBookChange(ctx context.Context, termCount int64, termID string, campaign ids.CampaignID, sku ids.SKUID, record string) error {
	return s.inTx(ctx, "record_book_change", needSettle, func(ctx context.Context, t tx) error {
		if _, err := t.Exec(ctx, sql("term_raise"), termCount, termID); err != nil {
			return err
		}
		tag, err := t.Exec(ctx, sql("book_record"), campaign, sku, record)
		if err == nil && tag.RowsAffected() == 0 {
			return fmt.Errorf("%w: stock of campaign %s, SKU %s", ErrNotFound, campaign, sku)
		}
		return err
	})
}

// decided is an adjustment as its row has it.
type decided struct {
	campaign     ids.CampaignID
	sku          ids.SKUID
	fenceVersion int64
	number       int64
	kind         AdjustmentKind
	units, asked int32
	outcome      AdjustmentOutcome
}

func (t tx) adjustment(ctx context.Context, id string) (decided, bool, error) {
	var d decided
	err := t.QueryRow(ctx, sql("adjustment_by_id"), id).Scan(&d.campaign, &d.sku, &d.fenceVersion, &d.number, &d.kind, &d.units, &d.asked, &d.outcome)
	if errors.Is(err, pgx.ErrNoRows) {
		return d, false, nil
	}
	return d, err == nil, err
}

// same refuses another adjustment under a known id. Fence version and number are not compared: what a
// shard has applied is booked under its id, whatever the version it is asked about. Apply and void of one adjustment are the same
// adjustment: which of them came first is what the sender learns from the outcome.
func (d decided) same(a Adjustment) error {
	if d.campaign != a.Campaign || d.sku != a.SKU || d.kind != a.Kind ||
		(!a.Void && d.outcome != Voided && d.asked != a.Units) {
		return fmt.Errorf("%w: adjustment %s is known as %s of %d units, number %d of fence version %d",
			ErrConflict, a.ID, d.kind, d.asked, d.number, d.fenceVersion)
	}
	return nil
}
