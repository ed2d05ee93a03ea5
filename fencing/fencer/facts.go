package fencer

import (
	"context"
	_ "embed"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cellquota/cellquota/fencing"
)

//go:embed sql/facts.sql
var factsSQL string

//go:embed sql/rules.sql
var rulesSQL string

//go:embed sql/moved.sql
var movedSQL string

//go:embed sql/seals.sql
var sealsSQL string

//go:embed sql/switch.sql
var switchSQL string

//go:embed sql/adjustments.sql
var adjustmentsSQL string

// Stock is one stock row with the newest adjustment and book change it knows.
type Stock struct {
	SKU                                     fencing.SKU
	Granted, Available, Reserved, Confirmed int64
	Released, Version                       int64
	AdjustmentVersion, LastNumber           int64
	LastAdjustmentID, BookRecordID          string
}

// Rules is what the shard was last told of a campaign: a message
// cellquota.v1.CampaignRules.
type Rules struct {
	Campaign string
	Version  int64
	Message  []byte
}

// Seal is what one fence took out of one SKU; never 0 units.
type Seal struct {
	SKU     fencing.SKU
	Version fencing.Version // of the fence
	Units   int64
}

// Switch is the newest word that the shard was told on whether its cell is paused.
// Version 0: it was told none.
type Switch struct {
	Paused  bool
	Version int64
	Reason  string
}

// Facts is what a shard knows, in one snapshot.
type Facts struct {
	Row    Row
	Stocks []Stock
	Rules  []Rules
	Seals  []Seal
	Switch Switch
	// Moved is the newest route version that moved a bucket, by campaign; 1: the publish's.
	Moved map[string]int64
}

// Facts reads what the shard knows. Raise the term first: then no deposed leader's
// adjustment lands behind the reading.
func (f *Fencer) Facts(ctx context.Context) (Facts, error) {
	var out Facts
	err := f.read(ctx, "read the facts", func(tx pgx.Tx) (err error) {
		if out.Row, err = row(ctx, tx); err != nil {
			return err
		}
		rows, _ := tx.Query(ctx, factsSQL) // its error comes with the rows
		out.Stocks, err = pgx.CollectRows(rows, func(r pgx.CollectableRow) (Stock, error) {
			var s Stock
			err := r.Scan(&s.SKU.Campaign, &s.SKU.SKU, &s.Granted, &s.Available, &s.Reserved, &s.Confirmed, &s.Released, &s.Version,
				&s.AdjustmentVersion, &s.LastNumber, &s.LastAdjustmentID, &s.BookRecordID)
			return s, err
		})
		if err != nil {
			return err
		}
		rows, _ = tx.Query(ctx, rulesSQL)
		out.Rules, err = pgx.CollectRows(rows, func(r pgx.CollectableRow) (Rules, error) {
			var c Rules
			err := r.Scan(&c.Campaign, &c.Version, &c.Message)
			return c, err
		})
		if err != nil {
			return err
		}
		rows, _ = tx.Query(ctx, sealsSQL)
		out.Seals, err = pgx.CollectRows(rows, func(r pgx.CollectableRow) (Seal, error) {
			var s Seal
			err := r.Scan(&s.SKU.Campaign, &s.SKU.SKU, &s.Version, &s.Units)
			return s, err
		})
		if err != nil {
			return err
		}
		if out.Moved, err = moved(ctx, tx); err != nil {
			return err
		}
		return tx.QueryRow(ctx, switchSQL).Scan(&out.Switch.Paused, &out.Switch.Version, &out.Switch.Reason)
	})
	return out, err
}

func moved(ctx context.Context, tx pgx.Tx) (map[string]int64, error) {
	out := map[string]int64{}
	var campaign string
	var version int64
	rows, _ := tx.Query(ctx, movedSQL) // its error comes with the rows
	_, err := pgx.ForEachRow(rows, []any{&campaign, &version}, func() error { out[campaign] = version; return nil })
	return out, err
}

// Adjustments reads up to limit numbered adjustments of a SKU whose ids come
// after one, in order of ids.
func (f *Fencer) Adjustments(ctx context.Context, sku fencing.SKU, after string, limit int) ([]fencing.Applied, error) {
	var out []fencing.Applied
	err := f.read(ctx, "read adjustments", func(tx pgx.Tx) (err error) {
		rows, _ := tx.Query(ctx, adjustmentsSQL, sku.Campaign, sku.SKU, after, limit)
		out, err = pgx.CollectRows(rows, func(r pgx.CollectableRow) (fencing.Applied, error) {
			a := fencing.Applied{SKU: sku}
			var kind, outcome string
			err := r.Scan(&a.ID, &a.Version, &a.Number, &kind, &a.Units, &outcome)
			a.Kind, a.Outcome = kinds[kind], outcomes[outcome]
			return a, err
		})
		return err
	})
	return out, err
}

// read runs statements in one snapshot that writes nothing.
func (f *Fencer) read(ctx context.Context, verb string, run func(pgx.Tx) error) error {
	tx, err := f.conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return translate(verb, err, false)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // nothing was written
	if err := run(tx); err != nil {
		if errors.Is(err, ErrOtherCell) || errors.Is(err, ErrBuckets) {
			return err
		}
		return translate(verb, err, false)
	}
	return nil
}

// querier is a connection or a transaction.
type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func row(ctx context.Context, q querier) (Row, error) {
	var r Row
	var version, from int64
	err := q.QueryRow(ctx, rowSQL).Scan(&r.Cell, &version, &from, &r.State, &r.Group, &r.StateSince, &r.ShardNow, &r.Term.Count, &r.Term.ID)
	if errors.Is(err, pgx.ErrNoRows) {
		return Row{}, fmt.Errorf("read the fence row: %w", ErrOtherCell)
	}
	r.Version, r.MessagesFrom = fencing.Version(version), fencing.Version(from)
	return r, err
}
