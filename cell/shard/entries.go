package shard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cellquota/cellquota/internal/ids"
)

// EntryAsk is one customer's wish to take part in the lottery of a SKU.
type EntryAsk struct {
	Campaign ids.CampaignID
	SKU      ids.SKUID
	User     ids.UserID
	Tier     string // of the verified token; tickets are by the campaign's rules
}

// EntryState is how an entry stands (seams, Words).
type EntryState string

// The states of an entry.
const (
	Entered EntryState = "ENTERED"
	Won     EntryState = "WON"
	Lost    EntryState = "LOST"
)

// Entry is one user's part in a lottery; one per campaign, SKU and user for ever.
type Entry struct {
	ID        ids.EntryID
	State     EntryState
	Tickets   int32
	EnteredAt time.Time
}

// EntryOutcome is what became of an EntryAsk.
type EntryOutcome uint8

// The outcomes. Only EntryAdded writes a row.
const (
	EntryAdded      EntryOutcome = iota + 1
	EntryReplayed                // the user entered before: Entry is that one, as it stands now
	EntryNotStarted              // before entry_open_at by the shard's clock
	EntryEnded                   // from entry_close_at on, or the SKU's entry was closed
	EntryUnknown                 // no such campaign and SKU here, no lottery of it, or it was cancelled
	EntryMoved                   // the user's bucket is not open here
)

// EntryResult is the answer to one EntryAsk.
type EntryResult struct {
	Outcome EntryOutcome
	Entry   Entry         // EntryAdded, EntryReplayed
	Opens   time.Duration // EntryNotStarted
}

// MaxEntries bounds one transaction of entries.
const MaxEntries = 500

// AddEntries takes the entries of customers, in one transaction; at most MaxEntries. A repeat reads the
// user's entry, also after its commit's outcome was unknown. Errors: ErrState, ErrFenced, ErrNoWriter
// (this process may not write), ErrBadData, ErrUnknownCommit (the repeat tells), ErrUnavailable.
func (s *Store) AddEntries(ctx context.Context, asks []EntryAsk) ([]EntryResult, error) {
	if len(asks) == 0 || len(asks) > MaxEntries {
		return nil, fmt.Errorf("%w: %d entries, 1 to %d go into one transaction", ErrInvalid, len(asks), MaxEntries)
	}
	var out []EntryResult
	err := s.inTx(ctx, "add_entries", needActive, func(ctx context.Context, t tx) error {
		run := entryRun{store: s, tx: t, asks: asks, results: make([]EntryResult, len(asks)), added: map[ids.EntryID]bool{}}
		out = run.results
		return run.apply(ctx)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// entryRun is one attempt at a transaction of entries.
type entryRun struct {
	store   *Store
	tx      tx
	asks    []EntryAsk
	results []EntryResult
	added   map[ids.EntryID]bool
}

func (r *entryRun) apply(ctx context.Context) error {
	rules, now, err := r.rules(ctx)
	if err != nil {
		return err
	}
	var may []int
	for i, a := range r.asks {
		l := rules[a.Campaign].lottery
		switch {
		case l == nil || rules[a.Campaign].cancelled:
			r.results[i].Outcome = EntryUnknown
		case now.Before(l.open):
			r.results[i] = EntryResult{Outcome: EntryNotStarted, Opens: l.open.Sub(now)}
		case !now.Before(l.close):
			r.results[i].Outcome = EntryEnded // unless he is in already
		default:
			may = append(may, i)
		}
	}
	if err := r.add(ctx, rules, may); err != nil {
		return err
	}
	return r.read(ctx)
}

// rules reads the lotteries of the asked campaigns and the shard's time.
func (r *entryRun) rules(ctx context.Context) (map[ids.CampaignID]spec, time.Time, error) {
	var named []string
	out := map[ids.CampaignID]spec{}
	for _, a := range r.asks {
		if _, seen := out[a.Campaign]; !seen {
			out[a.Campaign] = spec{}
			named = append(named, string(a.Campaign))
		}
	}
	var now time.Time
	if err := r.tx.QueryRow(ctx, sql("batch_now")).Scan(&now); err != nil {
		return nil, now, err
	}
	rows, err := r.tx.Query(ctx, sql("entries_rules"), named)
	if err != nil {
		return nil, now, err
	}
	versions := map[ids.CampaignID]int64{}
	var campaign ids.CampaignID
	var version int64
	if _, err := pgx.ForEachRow(rows, []any{&campaign, &version}, func() error { versions[campaign] = version; return nil }); err != nil {
		return nil, now, err
	}
	for campaign, version := range versions {
		if out[campaign], err = r.store.specFor(ctx, r.tx, campaign, version); err != nil {
			return nil, now, err
		}
	}
	return out, now, nil
}

// add writes the entries of those whose window is open.
func (r *entryRun) add(ctx context.Context, rules map[ids.CampaignID]spec, may []int) error {
	if len(may) == 0 {
		return nil
	}
	var campaigns, skus, users, entries []string
	var tickets, buckets []int32
	for _, i := range may {
		a := r.asks[i]
		campaigns, skus, users = append(campaigns, string(a.Campaign)), append(skus, string(a.SKU)), append(users, string(a.User))
		entries = append(entries, string(ids.DeriveEntry(a.Campaign, a.SKU, a.User, r.store.cfg.Cell)))
		tickets, buckets = append(tickets, rules[a.Campaign].lottery.tickets(a.Tier)), append(buckets, int32(ids.Bucket(a.User)))
	}
	rows, err := r.tx.Query(ctx, sql("entries_add"), campaigns, skus, users, entries, tickets, buckets)
	if err != nil {
		return err
	}
	var id ids.EntryID
	_, err = pgx.ForEachRow(rows, []any{&id}, func() error { r.added[id] = true; return nil })
	return err
}

// read tells what there is of each ask now.
func (r *entryRun) read(ctx context.Context) error {
	var campaigns, skus, users []string
	var buckets []int32
	for _, a := range r.asks {
		campaigns, skus, users = append(campaigns, string(a.Campaign)), append(skus, string(a.SKU)), append(users, string(a.User))
		buckets = append(buckets, int32(ids.Bucket(a.User)))
	}
	rows, err := r.tx.Query(ctx, sql("entries_standing"), campaigns, skus, users, buckets)
	if err != nil {
		return err
	}
	var i int
	var e entryRow
	var closed, sold, home bool
	_, err = pgx.ForEachRow(rows, []any{&i, &e.id, &e.tickets, &e.won, &e.at, &e.drawn, &closed, &sold, &home}, func() error {
		result := &r.results[i]
		switch {
		case e.id != "" && r.added[e.id]:
			*result = EntryResult{Outcome: EntryAdded, Entry: e.entry()}
		case e.id != "":
			*result = EntryResult{Outcome: EntryReplayed, Entry: e.entry()}
		case result.Outcome != 0:
		case !sold:
			result.Outcome = EntryUnknown
		case !home:
			result.Outcome = EntryMoved
		case closed:
			result.Outcome = EntryEnded
		default:
			return fmt.Errorf("an entry of %s in %s/%s was neither added nor refused", r.asks[i].User, r.asks[i].Campaign, r.asks[i].SKU)
		}
		return nil
	})
	return err
}

// entryRow is an entry as it is read.
type entryRow struct {
	id         ids.EntryID
	tickets    int32
	won, drawn bool
	at         *time.Time
}

func (e entryRow) entry() Entry {
	out := Entry{ID: e.id, State: Entered, Tickets: e.tickets, EnteredAt: orZero(e.at)}
	switch {
	case e.won && e.drawn: // named before the draw ended, he might yet be drawn with others again
		out.State = Won
	case e.drawn:
		out.State = Lost
	}
	return out
}

// GetEntry reads a user's entry. ErrNotFound: he has none here.
func (s *Store) GetEntry(ctx context.Context, campaign ids.CampaignID, sku ids.SKUID, user ids.UserID) (Entry, error) {
	var e entryRow
	err := s.pool.QueryRow(ctx, sql("entry_get"), campaign, sku, user).Scan(&e.id, &e.tickets, &e.won, &e.at, &e.drawn)
	if errors.Is(err, pgx.ErrNoRows) {
		return Entry{}, ErrNotFound
	}
	return e.entry(), translate(err)
}
