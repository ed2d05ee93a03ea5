package fencer

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cellquota/cellquota/fencing"
)

//go:embed sql/close_entries.sql
var closeEntriesSQL string

//go:embed sql/entries.sql
var entriesSQL string

//go:embed sql/draw_entries.sql
var drawEntriesSQL string

//go:embed sql/end_draw.sql
var endDrawSQL string

// Entry is one entry of a lottery.
type Entry struct {
	ID      string
	Tickets int
}

// CloseEntries ends entry of a SKU's lottery, on a live or fenced shard, and answers how many entered:
// from then on the list of entries is what it is. ErrWriters: transactions held the shard for longer
// than LockWait, try again. ErrOtherCell. A repeat answers the same.
func (f *Fencer) CloseEntries(ctx context.Context, cell string, sku fencing.SKU) (int64, error) {
	var entrants int64
	err := f.inTx(ctx, "close entries", func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, closeEntriesSQL, cell, sku.Campaign, sku.SKU, f.lockWait.Milliseconds()).Scan(&entrants)
	})
	return entrants, err
}

// Entries reads a page of at most limit entries with ids after the given one, in ascending order.
func (f *Fencer) Entries(ctx context.Context, sku fencing.SKU, after string, limit int) ([]Entry, error) {
	if limit < 1 || limit > maxPage {
		return nil, fmt.Errorf("a page of %d entries: %w", limit, ErrMove)
	}
	var out []Entry
	err := f.read(ctx, "read entries", func(tx pgx.Tx) error {
		rows, _ := tx.Query(ctx, entriesSQL, sku.Campaign, sku.SKU, after, limit) // its error comes with the rows
		var err error
		out, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Entry])
		return err
	})
	return out, err
}

// DrawEntries names winners among the entries, in pages of any size up to 10,000. ErrEntries: entry is
// not closed, or an id is not an entry of this shard. A repeat changes nothing.
func (f *Fencer) DrawEntries(ctx context.Context, cell string, sku fencing.SKU, winners []string) error {
	if len(winners) > maxPage {
		return fmt.Errorf("a page of %d winners: %w", len(winners), ErrMove)
	}
	return f.inTx(ctx, "draw entries", func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, drawEntriesSQL, cell, sku.Campaign, sku.SKU, winners)
		return err
	})
}

// EndDraw ends the draw: the winners are so many, and everybody else has lost. ErrEntries when the shard
// has another number of winners. A repeat changes nothing.
func (f *Fencer) EndDraw(ctx context.Context, cell string, sku fencing.SKU, winners int64) error {
	return f.inTx(ctx, "end draw", func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, endDrawSQL, cell, sku.Campaign, sku.SKU, winners)
		return err
	})
}
