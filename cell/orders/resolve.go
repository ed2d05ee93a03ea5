package orders

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/telemetry"
)

// facts are what the log says of one partition.
type facts struct {
	topicID    string
	start, end int64
	// epochEnd is where the stored position's leader epoch ended; -1: the log cannot say.
	epochEnd int64
}

// verdict tells whether a stored position belongs to the log, and if not, why. It is pure. Offset
// gaps and higher epochs are normal; an offset at the end is a log that was read to its end.
func verdict(stored shard.Position, f facts) error {
	switch {
	case stored.TopicID != f.topicID:
		return fmt.Errorf("%w: the topic is %s, the position is of %s", shard.ErrPositionMismatch, f.topicID, stored.TopicID)
	case stored.Next < f.start || stored.Next > f.end:
		return fmt.Errorf("%w: offset %d is outside the log [%d, %d]", shard.ErrPositionMismatch, stored.Next, f.start, f.end)
	case f.epochEnd >= 0 && f.epochEnd < stored.Next:
		return fmt.Errorf("%w: epoch %d ended at %d, before offset %d", shard.ErrPositionMismatch, stored.Epoch, f.epochEnd, stored.Next)
	}
	return nil
}

// resolve finds where a partition goes on. While shard or log cannot be read it tries again until ctx
// ends. A position that does not belong to the log is replaced by the log's start.
func (c *Consumer) resolve(ctx context.Context, id int32) (at shard.Position, missing bool, err error) {
	for attempt := 0; ; attempt++ {
		if at, missing, err = c.resolveOnce(ctx, id); err == nil {
			return at, missing, nil
		}
		c.log.Warn("position not resolved", telemetry.Event, "orders_resolve_failed", telemetry.Partition, id, telemetry.Error, err, telemetry.RetryCount, attempt)
		if wait := c.clock.Sleep(ctx, c.backoff(attempt)); wait != nil {
			return at, missing, errors.Join(wait, err)
		}
	}
}

func (c *Consumer) resolveOnce(ctx context.Context, id int32) (shard.Position, bool, error) {
	stored, found, err := c.store.ReadPosition(ctx, c.cfg.Topic, id)
	if err != nil {
		return stored, false, err
	}
	f, err := c.askLog(ctx, id, stored, found)
	if err != nil {
		return stored, false, err
	}
	first := shard.Position{Topic: c.cfg.Topic, Partition: id, TopicID: f.topicID, Next: f.start, Epoch: -1}
	if !found {
		return first, true, nil
	}
	mismatch := verdict(stored, f)
	if mismatch == nil {
		return stored, false, nil
	}
	c.metrics.mismatches.Inc()
	c.log.Error("stored position does not belong to the log; consuming from its start", telemetry.Event, "orders_position_mismatch",
		telemetry.Topic, c.cfg.Topic, telemetry.Partition, id, telemetry.Offset, stored.Next, telemetry.Error, mismatch)
	return first, false, c.store.ResetPosition(ctx, stored, first)
}

// askLog reads topic id, bounds and the end of the stored epoch.
func (c *Consumer) askLog(ctx context.Context, id int32, stored shard.Position, found bool) (facts, error) {
	f := facts{epochEnd: -1}
	topics, err := c.admin.ListTopics(ctx, c.cfg.Topic)
	if err != nil {
		return f, fmt.Errorf("read the topic: %w", err)
	}
	detail, ok := topics[c.cfg.Topic]
	if !ok || detail.Err != nil {
		return f, fmt.Errorf("topic %s: %w", c.cfg.Topic, errors.Join(detail.Err, errTopicMissing(ok)))
	}
	f.topicID = hex.EncodeToString(detail.ID[:])
	starts, err := c.admin.ListStartOffsets(ctx, c.cfg.Topic)
	if err != nil {
		return f, fmt.Errorf("read the log's start: %w", err)
	}
	ends, err := c.admin.ListEndOffsets(ctx, c.cfg.Topic)
	if err != nil {
		return f, fmt.Errorf("read the log's end: %w", err)
	}
	start, okStart := starts.Lookup(c.cfg.Topic, id)
	end, okEnd := ends.Lookup(c.cfg.Topic, id)
	if !okStart || !okEnd || start.Err != nil || end.Err != nil {
		return f, fmt.Errorf("bounds of partition %d: %w", id, errors.Join(start.Err, end.Err, errTopicMissing(okStart && okEnd)))
	}
	f.start, f.end = start.Offset, end.Offset
	if found && stored.Epoch >= 0 && stored.TopicID == f.topicID {
		f.epochEnd = c.epochEnd(ctx, id, stored.Epoch)
	}
	return f, nil
}

func errTopicMissing(there bool) error {
	if there {
		return nil
	}
	return errors.New("not there: cell provision creates it")
}

// epochEnd asks where an epoch ended; -1 when the log cannot say, which is no evidence against the
// position.
func (c *Consumer) epochEnd(ctx context.Context, id, epoch int32) int64 {
	var req kadm.OffsetForLeaderEpochRequest
	req.Add(c.cfg.Topic, id, epoch)
	res, err := c.admin.OffsetForLeaderEpoch(ctx, req)
	if err != nil {
		return -1
	}
	answer, ok := res[c.cfg.Topic][id]
	if !ok || answer.Err != nil || answer.LeaderEpoch < epoch {
		return -1
	}
	return answer.EndOffset
}

// reseek reads the stored position again and lets the client fetch from there. What was fetched
// before is dropped by its offset.
func (c *Consumer) reseek(p *partition) {
	at, missing, err := c.resolve(p.ctx, p.id)
	if err != nil {
		return // the partition was taken away
	}
	p.mu.Lock()
	p.at, p.missing = at, missing
	p.mu.Unlock()
	c.seek(p.id, at.Next)
}

func (c *Consumer) seek(id int32, next int64) {
	c.client.SetOffsets(map[string]map[int32]kgo.EpochOffset{c.cfg.Topic: {id: {Epoch: -1, Offset: next}}})
}

func (c *Consumer) backoff(attempt int) time.Duration {
	return min(c.cfg.RetryMin<<min(attempt, 16), c.cfg.RetryMax)
}
