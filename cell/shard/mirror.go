package shard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cellquota/cellquota/internal/ids"
)

// WholeCampaign is the scope key of a mirror whose campaign has the purchase scope CAMPAIGN; with
// the scope SKU the key is the SKU.
const WholeCampaign = "*"

// Mint is a build id that was given out to one process.
type Mint struct {
	Build ids.Build
	// NeedsBarrier: messages of an older build may still become orders, so a barrier must be
	// consumed in every partition before a snapshot is worth anything. False when no build was ever
	// raised or the raised one is below messages_from: then RaiseBuild does it.
	NeedsBarrier bool
}

// MintBuild gives owner the next build id of a mirror and with it the right to build it until the
// lease ends by the database's clock; ErrBusy while another owner has it. Only the newest minted
// build can be raised, so a builder that was overtaken learns it there. An owner that mints again
// starts over with a new id.
func (s *Store) MintBuild(ctx context.Context, campaign ids.CampaignID, scopeKey, owner string, lease time.Duration) (Mint, error) {
	var m Mint
	err := s.inTx(ctx, "mint_build", needSettle, func(ctx context.Context, t tx) error {
		err := t.QueryRow(ctx, sql("mirror_mint"), campaign, scopeKey, t.writer.FenceVersion, owner, lease.Seconds()).
			Scan(&m.Build.Fence, &m.Build.Count, &m.NeedsBarrier)
		if errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("%w: another process builds the mirror of %s/%s", ErrBusy, campaign, scopeKey)
		}
		return err
	})
	return m, err
}

// ReleaseMint ends owner's claim early, after its mirror was installed.
func (s *Store) ReleaseMint(ctx context.Context, campaign ids.CampaignID, scopeKey, owner string) error {
	return s.inTx(ctx, "release_mint", needSettle, func(ctx context.Context, t tx) error {
		_, err := t.Exec(ctx, sql("mirror_release"), campaign, scopeKey, owner)
		return err
	})
}

// RaiseBuild raises a minted build without a barrier, where MintBuild said that none is needed.
// ErrConflict: a newer build was minted, or a barrier is needed after all. A repeat changes nothing.
func (s *Store) RaiseBuild(ctx context.Context, campaign ids.CampaignID, scopeKey string, build ids.Build) error {
	return s.inTx(ctx, "raise_build", needSettle, func(ctx context.Context, t tx) error {
		if _, err := t.Exec(ctx, sql("mirror_lock_stock"), campaign, scopeKey); err != nil {
			return err
		}
		tag, err := t.Exec(ctx, sql("mirror_raise"), campaign, scopeKey, build.Fence, build.Count)
		if err == nil && tag.RowsAffected() == 0 {
			return fmt.Errorf("%w: build %s of %s/%s is not the newest, or needs a barrier", ErrConflict, build, campaign, scopeKey)
		}
		return err
	})
}

// RaisedBuild is the build below which messages are LOST_ADMISSION; zero: none was raised.
func (s *Store) RaisedBuild(ctx context.Context, campaign ids.CampaignID, scopeKey string) (ids.Build, error) {
	var b ids.Build
	err := s.pool.QueryRow(ctx, sql("mirror_raised"), campaign, scopeKey).Scan(&b.Fence, &b.Count)
	if errors.Is(err, pgx.ErrNoRows) {
		return ids.Build{}, nil
	}
	return b, translate(err)
}
