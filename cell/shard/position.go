package shard

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Position is where a partition goes on: the next offset to be applied, in the log of one topic id.
// It is moved in the transaction that applies what lies before it, so a shard that loses its tail
// takes its consumer back with it.
type Position struct {
	Topic     string
	Partition int32
	TopicID   string
	Next      int64
	Epoch     int32 // leader epoch of the record before Next; -1: unknown
}

// ReadPosition reads the stored position; false: none yet.
func (s *Store) ReadPosition(ctx context.Context, topic string, partition int32) (Position, bool, error) {
	return readPosition(s.pool.QueryRow(ctx, sql("position_read"), topic, partition), topic, partition)
}

func readPosition(row pgx.Row, topic string, partition int32) (Position, bool, error) {
	p := Position{Topic: topic, Partition: partition}
	err := row.Scan(&p.TopicID, &p.Next, &p.Epoch)
	if errors.Is(err, pgx.ErrNoRows) {
		return p, false, nil
	}
	return p, err == nil, translate(err)
}

// StartPosition creates a partition's row; one that is there stays as it is.
func (s *Store) StartPosition(ctx context.Context, p Position) error {
	return s.inTx(ctx, "start_position", needSettle, func(ctx context.Context, t tx) error {
		_, err := t.Exec(ctx, sql("position_start"), p.Topic, p.Partition, p.TopicID, p.Next, p.Epoch)
		return err
	})
}

// ResetPosition replaces a position that does not belong to the log any more, so that the partition
// is consumed again from next. What was applied stays applied: the inbox knows it. ErrPositionLost
// when somebody moved the position first.
func (s *Store) ResetPosition(ctx context.Context, from, next Position) error {
	return s.inTx(ctx, "reset_position", needSettle, func(ctx context.Context, t tx) error {
		tag, err := t.Exec(ctx, sql("position_reset"), from.Topic, from.Partition, from.TopicID, from.Next, next.TopicID, next.Next, next.Epoch)
		if err == nil && tag.RowsAffected() == 0 {
			return fmt.Errorf("%w: %s/%d", ErrPositionLost, from.Topic, from.Partition)
		}
		return err
	})
}

// compare refuses a stored position that is not the expected one. The row is locked by now.
func (p Position) compare(stored Position, found bool) error {
	switch {
	case !found:
		return fmt.Errorf("%w: %s/%d has none", ErrPositionLost, p.Topic, p.Partition)
	case stored.TopicID != p.TopicID:
		return fmt.Errorf("%w: %s is topic id %s, the position is of %s", ErrPositionMismatch, p.Topic, p.TopicID, stored.TopicID)
	case stored.Next != p.Next:
		return fmt.Errorf("%w: %s/%d is at %d, not at %d", ErrPositionLost, p.Topic, p.Partition, stored.Next, p.Next)
	}
	return nil
}

// advance moves the locked position.
func (t tx) advance(ctx context.Context, from Position, next int64, epoch int32) error {
	tag, err := t.Exec(ctx, sql("position_advance"), from.advanceArgs(next, epoch)...)
	if err != nil {
		return err
	}
	return exactly("positions", tag.RowsAffected(), 1)
}

func (p Position) advanceArgs(next int64, epoch int32) []any {
	return []any{p.Topic, p.Partition, p.TopicID, p.Next, next, epoch}
}

// lockPosition waits for whoever moves the position and then compares.
func (t tx) lockPosition(ctx context.Context, p Position) error {
	stored, found, err := readPosition(t.QueryRow(ctx, sql("position_lock"), p.Topic, p.Partition), p.Topic, p.Partition)
	if err != nil {
		return err
	}
	return p.compare(stored, found)
}
