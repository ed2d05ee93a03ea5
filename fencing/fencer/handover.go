package fencer

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cellquota/cellquota/internal/ids"
)

//go:embed sql/close_buckets.sql
var closeBucketsSQL string

//go:embed sql/closing.sql
var closingSQL string

//go:embed sql/import_buckets.sql
var importBucketsSQL string

//go:embed sql/open_buckets.sql
var openBucketsSQL string

// maxPage bounds a page of an export.
const maxPage = 10_000

// BucketRange is [From, To] of a traffic domain's 4,096 buckets.
type BucketRange struct{ From, To uint16 }

// Move names one handover in both shards: a range of a campaign's domain under the route version that
// it makes, at least 2. The same Move is the same handover; another range, or another handover, under the
// same version is refused.
type Move struct {
	Campaign     string
	Domain       string
	Range        BucketRange
	RouteVersion int64
	// Handover says whose it is: the operation and the taker. Two that etcd, restored from a backup, gave
	// one route version are two.
	Handover string
}

func (m Move) args(more ...any) []any {
	return append([]any{m.Campaign, m.Domain, int(m.Range.From), int(m.Range.To), m.RouteVersion}, more...)
}

func (m Move) check() error {
	if m.Campaign == "" || m.Handover == "" || m.Range.From > m.Range.To || m.Range.To >= ids.Buckets || m.RouteVersion < 2 {
		return fmt.Errorf("hand over buckets %d to %d of %q at route version %d: %w", m.Range.From, m.Range.To, m.Campaign, m.RouteVersion, ErrMove)
	}
	return nil
}

// Closed are the parts of a Move's range that the source owned.
type Closed []BucketRange

func (c Closed) has(user string) bool {
	bucket := ids.Bucket(ids.UserID(user))
	for _, r := range c {
		if bucket >= r.From && bucket <= r.To {
			return true
		}
	}
	return false
}

func (c Closed) text() (string, error) {
	pairs := make([][2]uint16, len(c))
	for i, r := range c {
		pairs[i] = [2]uint16{r.From, r.To}
	}
	raw, err := json.Marshal(pairs)
	return string(raw), err
}

func decodeClosed(raw []byte) (Closed, error) {
	var pairs [][2]uint16
	if err := json.Unmarshal(raw, &pairs); err != nil {
		return nil, fmt.Errorf("read the closed buckets: %w", err)
	}
	out := make(Closed, len(pairs))
	for i, p := range pairs {
		out[i] = BucketRange{From: p[0], To: p[1]}
	}
	return out, nil
}

// CloseBuckets closes what cell owns of the range, for live and fenced shards alike, but not for one that
// is being recovered (ErrStateRefused); from then on no buyer of it can be added, and what was added is in
// the export. ErrWriters: transactions held the shard for longer than LockWait; nobody's backend is ended
// for it, try again. ErrRouteVersion, ErrBuckets (the cell owns none of them), ErrOtherCell. A repeat
// answers the same.
func (f *Fencer) CloseBuckets(ctx context.Context, cell string, m Move) (Closed, error) {
	if err := m.check(); err != nil {
		return nil, err
	}
	var raw []byte
	err := f.inTx(ctx, "close buckets", func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, closeBucketsSQL, append([]any{cell}, m.args(m.Handover, f.lockWait.Milliseconds())...)...).Scan(&raw)
	})
	if err != nil {
		return nil, err
	}
	return decodeClosed(raw)
}

// closed reads what a Move closed; ErrBuckets when it closed nothing yet, because an export of an open
// bucket would miss the orders that follow.
func closed(ctx context.Context, tx pgx.Tx, m Move) (Closed, error) {
	var raw []byte
	err := tx.QueryRow(ctx, closingSQL, m.args()...).Scan(&raw)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("the buckets were not closed by route version %d: %w", m.RouteVersion, ErrBuckets)
	}
	if err != nil {
		return nil, err
	}
	return decodeClosed(raw)
}

// Import is how far a Move has come at its target; the keys are where the next pages begin.
type Import struct {
	BuyersAfter   []string
	BuyersDone    bool
	Buyers        int64 // that arrived
	RequestsAfter []string
	RequestsDone  bool
	Requests      int64
	Open          bool
}

func (i *Import) scan(row pgx.Row) error {
	return row.Scan(&i.BuyersAfter, &i.BuyersDone, &i.Buyers, &i.RequestsAfter, &i.RequestsDone, &i.Requests, &i.Open)
}

// ImportBuckets begins a Move at its target: what the source closed becomes IMPORTING, and nobody gets
// an order there yet. A repeat answers how far it has come. ErrStateRefused on a fenced shard,
// ErrRouteVersion, ErrBuckets (the cell has some of them already).
func (f *Fencer) ImportBuckets(ctx context.Context, cell string, m Move, what Closed) (Import, error) {
	if err := m.check(); err != nil {
		return Import{}, err
	}
	ranges, err := what.text()
	if err != nil {
		return Import{}, err
	}
	return f.imported(ctx, "import buckets", importBucketsSQL, cell, m, m.Handover, ranges)
}

// OpenBuckets lets the target sell to the users of a Move that arrived whole; ErrBuckets before. A
// repeat changes nothing.
func (f *Fencer) OpenBuckets(ctx context.Context, cell string, m Move) (Import, error) {
	if err := m.check(); err != nil {
		return Import{}, err
	}
	return f.imported(ctx, "open buckets", openBucketsSQL, cell, m)
}

func (f *Fencer) imported(ctx context.Context, verb, sql, cell string, m Move, more ...any) (Import, error) {
	var out Import
	err := f.inTx(ctx, verb, func(tx pgx.Tx) error {
		return out.scan(tx.QueryRow(ctx, sql, append([]any{cell}, m.args(more...)...)...))
	})
	return out, err
}
