package fencer

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"

	eventsv1 "github.com/cellquota/cellquota/proto/cellquota/events/v1"
)

//go:embed sql/export_buyers.sql
var exportBuyersSQL string

//go:embed sql/export_requests.sql
var exportRequestsSQL string

//go:embed sql/import_buyers.sql
var importBuyersSQL string

//go:embed sql/import_requests.sql
var importRequestsSQL string

// Page is a run of an export: what lies after the key After, up to Next. Rows of other buckets were
// left out, so that a page may be empty and not the last.
type Page[T any] struct {
	Rows        []T
	After, Next []string
	Last        bool
}

// Buyer is the place of one user: an order of that purchase scope, in whichever cell its id names.
type Buyer struct {
	Scope, User, Reservation string
	SKU, Request             string
}

// Request is one answered request. REJECTED with the reason MOVED is no answer and never here.
type Request struct {
	SKU, User, Request, Reservation string
	Quantity                        int32
	Fingerprint, Outcome, Reason    string
}

// ExportBuyers reads a page of at most limit places of the closed buckets, own and carried, by (scope,
// user). ErrBuckets before CloseBuckets.
func (f *Fencer) ExportBuyers(ctx context.Context, m Move, after []string, limit int) (Page[Buyer], error) {
	scan := func(r pgx.CollectableRow) (Buyer, error) {
		var b Buyer
		return b, r.Scan(&b.Scope, &b.User, &b.Reservation, &b.SKU, &b.Request)
	}
	return export(ctx, f, m, exportBuyersSQL, after, 2, limit, scan,
		func(b Buyer) (string, []string) { return b.User, []string{b.Scope, b.User} })
}

// ExportRequests reads a page of at most limit answered requests of the closed buckets' users, by (SKU,
// user, request), whether or not the user got an order. ErrBuckets before CloseBuckets.
func (f *Fencer) ExportRequests(ctx context.Context, m Move, after []string, limit int) (Page[Request], error) {
	scan := func(r pgx.CollectableRow) (Request, error) {
		var q Request
		return q, r.Scan(&q.SKU, &q.User, &q.Request, &q.Reservation, &q.Quantity, &q.Fingerprint, &q.Outcome, &q.Reason)
	}
	return export(ctx, f, m, exportRequestsSQL, after, 3, limit, scan,
		func(q Request) (string, []string) { return q.User, []string{q.SKU, q.User, q.Request} })
}

// export reads one page and keeps the rows of the closed buckets. Whose bucket a row is, is told by its
// user alone: rows need no column of it, whichever program wrote them.
func export[T any](ctx context.Context, f *Fencer, m Move, sql string, after []string, keys, limit int,
	scan pgx.RowToFunc[T], of func(T) (user string, key []string),
) (Page[T], error) {
	if limit < 1 || limit > maxPage || (len(after) != 0 && len(after) != keys) {
		return Page[T]{}, fmt.Errorf("a page of %d rows after %d keys: %w", limit, len(after), ErrMove)
	}
	args := []any{m.Campaign}
	for i := range keys {
		if len(after) == 0 {
			args = append(args, "")
			continue
		}
		args = append(args, after[i])
	}
	page := Page[T]{After: append([]string{}, after...), Next: append([]string{}, after...)}
	err := f.read(ctx, "export", func(tx pgx.Tx) error {
		what, err := closed(ctx, tx, m)
		if err != nil {
			return err
		}
		rows, _ := tx.Query(ctx, sql, append(args, limit)...) // its error comes with the rows
		all, err := pgx.CollectRows(rows, scan)
		if err != nil {
			return err
		}
		page.Last = len(all) < limit
		for _, row := range all {
			user, key := of(row)
			if page.Next = key; what.has(user) {
				page.Rows = append(page.Rows, row)
			}
		}
		return nil
	})
	return page, err
}

// ImportBuyers writes a page at the target. A page that arrived before changes nothing; one that does
// not follow the last is ErrBuckets: go on from the Import that ImportBuckets answers. ErrTwoOrders: a
// user has an order in both shards, which must never be (I4); stop and call somebody.
func (f *Fencer) ImportBuyers(ctx context.Context, cell string, m Move, p Page[Buyer]) (Import, error) {
	n := len(p.Rows)
	text := columns(4, n)
	effects := make([][]byte, n)
	for i, b := range p.Rows {
		for c, v := range []string{b.Scope, b.User, b.SKU, b.Reservation} {
			text[c][i] = v
		}
		var err error
		if effects[i], err = markEffect(m.Campaign, b); err != nil {
			return Import{}, err
		}
	}
	return f.imported(ctx, "import buyers", importBuyersSQL, cell, m, p.After, p.Next, p.Last, text[0], text[1], text[2], text[3], effects)
}

// markEffect gives the user's place in the mirror to the reservation that another cell has.
func markEffect(campaign string, b Buyer) ([]byte, error) {
	return proto.MarshalOptions{Deterministic: true}.Marshal(&eventsv1.MirrorEffect{
		EffectId: "carried-" + b.Reservation, CampaignId: campaign, SkuId: b.SKU, UserId: b.User,
		Mark: eventsv1.MarkAction_MARK_ACTION_SET_WINNER, WinnerReservationId: b.Reservation, WinnerRequestId: b.Request,
	})
}

// ImportRequests writes a page at the target, likewise.
func (f *Fencer) ImportRequests(ctx context.Context, cell string, m Move, p Page[Request]) (Import, error) {
	n := len(p.Rows)
	text := columns(7, n)
	quantity := make([]int32, n)
	for i, q := range p.Rows {
		for c, v := range []string{q.SKU, q.User, q.Request, q.Reservation, q.Fingerprint, q.Outcome, q.Reason} {
			text[c][i] = v
		}
		quantity[i] = q.Quantity
	}
	return f.imported(ctx, "import requests", importRequestsSQL, cell, m, p.After, p.Next, p.Last,
		text[0], text[1], text[2], text[3], quantity, text[4], text[5], text[6])
}

func columns(n, rows int) [][]string {
	out := make([][]string, n)
	for c := range out {
		out[c] = make([]string, rows)
	}
	return out
}
