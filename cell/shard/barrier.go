package shard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cellquota/cellquota/internal/ids"
)

// Barrier separates two builds of one mirror in one partition.
type Barrier struct {
	Campaign   ids.CampaignID
	ScopeKey   string // the SKU, or WholeCampaign
	Build      ids.Build
	Partition  int32
	Partitions int32
}

// raisedPoll is the pause between two looks at the raised build.
const raisedPoll = 20 * time.Millisecond

// AwaitRaised waits until build, whose barrier is in the log, is the raised one: its barrier was consumed
// in every partition, and no admission of an older build can become an order. ErrConflict: a newer one
// was raised meanwhile. ctx bounds the wait.
func (s *Store) AwaitRaised(ctx context.Context, campaign ids.CampaignID, scopeKey string, build ids.Build) error {
	for {
		raised, err := s.RaisedBuild(ctx, campaign, scopeKey)
		if err != nil {
			return err
		}
		switch raised.Compare(build) {
		case 0:
			return nil
		case 1:
			return fmt.Errorf("%w: build %s of %s/%s was raised meanwhile", ErrConflict, raised, campaign, scopeKey)
		}
		if err := s.clock.Sleep(ctx, raisedPoll); err != nil {
			return fmt.Errorf("barrier not consumed in time: %w", err)
		}
	}
}

// ApplyBarrier consumes a barrier and moves the position over it. The last partition's barrier
// raises the shard's build, and says so. A barrier of another build than the newest minted, or
// replayed, changes nothing and lowers nothing; one of a build that was never minted here is
// ErrShardBehind.
func (s *Store) ApplyBarrier(ctx context.Context, from Position, to int64, epoch int32, b Barrier) (raised bool, err error) {
	err = s.inTx(ctx, "apply_barrier", needSettle, func(ctx context.Context, t tx) error {
		raised = false
		if err := t.lockPosition(ctx, from); err != nil {
			return err
		}
		if _, err := t.Exec(ctx, sql("mirror_lock_stock"), b.Campaign, b.ScopeKey); err != nil {
			return err
		}
		if raised, err = t.consumeBarrier(ctx, b); err != nil {
			return err
		}
		return t.advance(ctx, from, to, epoch)
	})
	return raised, err
}

func (t tx) consumeBarrier(ctx context.Context, b Barrier) (bool, error) {
	var minted, was ids.Build
	err := t.QueryRow(ctx, sql("mirror_lock"), b.Campaign, b.ScopeKey).Scan(&minted.Fence, &minted.Count, &was.Fence, &was.Count)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return false, err
	}
	if b.Build.Compare(minted) > 0 {
		return false, fmt.Errorf("%w: barrier of build %s, the shard minted %s", ErrShardBehind, b.Build, minted)
	}
	var raised bool
	err = t.QueryRow(ctx, sql("mirror_barrier"), b.Campaign, b.ScopeKey, b.Build.Fence, b.Build.Count, b.Partition, b.Partitions).Scan(&raised)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil // an older build, or one that is raised already
	}
	return raised, err
}

// Parking is one message that cannot be applied because of its own data.
type Parking struct {
	Offset     int64
	ErrorClass string // SQLSTATE class, or DECODE
	Value      []byte // as it lay in the log
	// Message is set when the value could be decoded: then its request reads as MANUAL_REVIEW, and
	// its unit and its mark stay with it.
	Message *Message
}

// ApplyParking records a message that cannot be applied and moves the position over it. The inbox
// row may be refused for the same data; then the parked value alone remains.
func (s *Store) ApplyParking(ctx context.Context, from Position, to int64, epoch int32, p Parking) error {
	return s.inTx(ctx, "apply_parking", needSettle, func(ctx context.Context, t tx) error {
		if err := t.lockPosition(ctx, from); err != nil {
			return err
		}
		_, err := t.Exec(ctx, sql("parked_insert"), from.Topic, from.Partition, from.TopicID, p.Offset, p.ErrorClass, p.Value)
		if err != nil {
			return err
		}
		if p.Message != nil {
			if err := t.parkRequest(ctx, from, p.Message); err != nil {
				return err
			}
		}
		return t.advance(ctx, from, to, epoch)
	})
}

// parkRequest writes the inbox row and its effect inside a savepoint.
func (t tx) parkRequest(ctx context.Context, from Position, m *Message) error {
	inner, err := t.Begin(ctx)
	if err != nil {
		return err
	}
	nested := tx{Tx: inner, writer: t.writer, marks: t.marks}
	if err := nested.writeParked(ctx, from, m); err != nil {
		if rollback := inner.Rollback(ctx); rollback != nil {
			return rollback
		}
		if errors.Is(translate(err), ErrBadData) {
			return nil
		}
		return err
	}
	return inner.Commit(ctx)
}

func (t tx) writeParked(ctx context.Context, from Position, m *Message) error {
	var now time.Time
	if err := t.QueryRow(ctx, sql("batch_now")).Scan(&now); err != nil {
		return err
	}
	run := batchRun{tx: t, in: Batch{From: from, Messages: []Message{*m}}, now: now}
	run.out.Decisions = []Decision{{Outcome: Parked}}
	if _, err := t.Exec(ctx, sql("batch_inbox_insert"), run.inboxArgs(1)...); err != nil {
		return err
	}
	effects, err := run.effects()
	if err != nil {
		return err
	}
	return t.leave(ctx, effects)
}

// SkipTo moves the position over records that carry nothing for the shard.
func (s *Store) SkipTo(ctx context.Context, from Position, to int64, epoch int32) error {
	return s.inTx(ctx, "skip_to", needSettle, func(ctx context.Context, t tx) error {
		if err := t.lockPosition(ctx, from); err != nil {
			return err
		}
		return t.advance(ctx, from, to, epoch)
	})
}
