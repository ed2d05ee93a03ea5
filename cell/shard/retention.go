package shard

import (
	"context"
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
// database's clock, and are not archived yet or have inbox rows older than replay. A schema
// below step 9 has none.
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

// PruneInbox deletes at most page inbox rows (1 to 50,000) of an archived campaign that are
// older than replay: no log and no backup has their message any more, and no receipt of the
// campaign is valid. Parked ones stay.
func (s *Store) PruneInbox(ctx context.Context, campaign ids.CampaignID, replay time.Duration, page int) (gone int64, err error) {
	if page < 1 || page > maxArchivePage || replay <= 0 {
		return 0, fmt.Errorf("%w: a page of 1 to %d rows, and how long a message can be replayed", ErrInvalid, maxArchivePage)
	}
	err = s.inTx(ctx, "prune_inbox", needSettle, func(ctx context.Context, t tx) error {
		return t.QueryRow(ctx, sql("retention_inbox"), campaign, replay.Seconds(), page).Scan(&gone)
	})
	return gone, err
}

// LedgerParts counts the partitions of the ledger: one per campaign that is not archived, and
// one for what comes after an archive.
func (s *Store) LedgerParts(ctx context.Context) (parts int64, err error) {
	err = s.pool.QueryRow(ctx, sql("retention_parts")).Scan(&parts)
	return parts, translate(err)
}
