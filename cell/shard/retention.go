package shard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cellquota/cellquota/internal/ids"
)

// ArchiveStep is what one step of archiving a campaign's ledger came to.
type ArchiveStep string

// The steps.
const (
	ArchiveNotDue  ArchiveStep = "NOT_DUE"  // it, or one that shares its partition, is not settled long enough
	ArchiveCopied  ArchiveStep = "COPIED"   // entries were copied, more are left
	ArchiveWaiting ArchiveStep = "WAITING"  // somebody uses the ledger: again later, nothing is lost
	Archived       ArchiveStep = "ARCHIVED" // done, now or before
)

// Settled is a campaign of which something is left to archive or to prune.
type Settled struct {
	Campaign ids.CampaignID
	Archived bool // its ledger is
}

// Bounds of one transaction of retention.
const (
	maxArchivePage = 50_000
	maxSettled     = 100
)

// SettledCampaigns lists at most 100 campaigns that are settled here for after, by the
// database's clock, and are not archived yet, or for replay and whose inbox is not pruned. It
// reads a row per campaign and no more. A schema below step 9 has none.
func (s *Store) SettledCampaigns(ctx context.Context, after, replay time.Duration) ([]Settled, error) {
	if known, err := schemaHas(ctx, s.pool, &s.retentionKnown, "retention_known"); err != nil || !known {
		return nil, translate(err)
	}
	rows, err := s.pool.Query(ctx, sql("retention_due"), after.Seconds(), replay.Seconds(), maxSettled)
	if err != nil {
		return nil, translate(err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Settled])
	return out, translate(err)
}

// ArchiveLedger takes the archive of a settled campaign's ledger one step of at most page
// entries (1 to 50,000) on. Repeats, and several processes, change nothing more. ErrConflict:
// the ledger does not lead to its stock row, and stays where it is.
func (s *Store) ArchiveLedger(ctx context.Context, campaign ids.CampaignID, after time.Duration, page int) (step ArchiveStep, err error) {
	if page < 1 || page > maxArchivePage {
		return "", fmt.Errorf("%w: a page of 1 to %d entries", ErrInvalid, maxArchivePage)
	}
	err = s.inTx(ctx, "archive_ledger", needSettle, func(ctx context.Context, t tx) error {
		return t.QueryRow(ctx, sql("retention_archive"), campaign, after.Seconds(), page).Scan(&step)
	})
	if err != nil {
		return "", err
	}
	return step, nil
}

// InboxWalk is how far a walk over an archived campaign's inbox came. The zero value starts one.
type InboxWalk struct {
	Gone int64 // rows deleted so far
	Done bool  // the walk ended, or another process is walking
	left bool  // rows are too young: another walk
	sku  ids.SKUID
	user ids.UserID
	req  ids.RequestID
}

// PruneInbox takes a walk over the inbox of an archived campaign one page (1 to 50,000 rows) on, and
// deletes what is older than replay: no log and no backup has its message any more, and no receipt of
// the campaign is valid. Parked ones stay. A walk that leaves no other row is the campaign's last.
func (s *Store) PruneInbox(ctx context.Context, campaign ids.CampaignID, replay time.Duration, page int, walk InboxWalk) (InboxWalk, error) {
	if page < 1 || page > maxArchivePage || replay <= 0 {
		return walk, fmt.Errorf("%w: a page of 1 to %d rows, and how long a message can be replayed", ErrInvalid, maxArchivePage)
	}
	next := walk
	err := s.inTx(ctx, "prune_inbox", needSettle, func(ctx context.Context, t tx) (err error) {
		next, err = t.pruneInbox(ctx, campaign, replay, page, walk)
		return err
	})
	if err != nil {
		return walk, err
	}
	return next, nil
}

func (t tx) pruneInbox(ctx context.Context, campaign ids.CampaignID, replay time.Duration, page int, walk InboxWalk) (InboxWalk, error) {
	var claimed bool
	switch err := t.QueryRow(ctx, sql("retention_inbox_claim"), campaign).Scan(&claimed); {
	case errors.Is(err, pgx.ErrNoRows):
		walk.Done = true
		return walk, nil
	case err != nil:
		return walk, err
	}
	var gone int64
	var left, more bool
	err := t.QueryRow(ctx, sql("retention_inbox"), campaign, walk.sku, walk.user, walk.req, replay.Seconds(), page).
		Scan(&gone, &left, &more, &walk.sku, &walk.user, &walk.req)
	if err != nil {
		return walk, err
	}
	walk.Gone, walk.left, walk.Done = walk.Gone+gone, walk.left || left, !more
	if walk.Done && !walk.left {
		_, err = t.Exec(ctx, sql("retention_inbox_done"), campaign) // no row: it was said before
	}
	return walk, err
}

// LedgerParts counts the partitions of the ledger: one per campaign that is not archived, and
// one for what comes after an archive.
func (s *Store) LedgerParts(ctx context.Context) (parts int64, err error) {
	err = s.pool.QueryRow(ctx, sql("retention_parts")).Scan(&parts)
	return parts, translate(err)
}
