package orders

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cellquota/cellquota/cell/events"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/kafka"
	"github.com/cellquota/cellquota/internal/telemetry"
)

// Store is what this package needs of the shard.
type Store interface {
	Writer() (shard.Writer, bool)
	ReadPosition(ctx context.Context, topic string, partition int32) (shard.Position, bool, error)
	StartPosition(ctx context.Context, p shard.Position) error
	ResetPosition(ctx context.Context, from, next shard.Position) error
	ApplyOrders(ctx context.Context, b shard.Batch) (shard.BatchResult, error)
	ApplyBarrier(ctx context.Context, from shard.Position, to int64, epoch int32, b shard.Barrier) (bool, error)
	ApplyParking(ctx context.Context, from shard.Position, to int64, epoch int32, p shard.Parking) error
}

// Config says what is consumed and in which portions.
type Config struct {
	Cell      ids.CellID
	Brokers   []string
	Topic     string        // default: the cell's admissions topic
	BatchMax  int           // messages in one transaction; default 500
	BatchWait time.Duration // how long a small batch waits for more; 0: not at all
	// SessionTimeout is how long the group keeps the partitions of a process that died without a word;
	// default 6 s. Positions are the shard's, so that a process taken for dead too early does no harm.
	SessionTimeout time.Duration
	// Member names this process in the group across restarts (static membership, KIP-345): one that died
	// without a word takes its partitions back as soon as it is there again. Of no other live process of the
	// cell: two of one name take the place from each other. Empty: nameless, and a restart waits for
	// SessionTimeout. [A-Za-z0-9._-], at most 249 characters.
	Member   string
	RetryMin time.Duration // back-off after a fault; default 50 ms
	RetryMax time.Duration // default 2 s
}

// Consumer applies the partitions that the group hands to this process.
type Consumer struct {
	cfg     Config
	store   Store
	client  *kgo.Client
	admin   *kadm.Client
	clock   clock.Clock
	log     *slog.Logger
	metrics *metrics
	applied atomic.Int64
	// made is closed when client and admin stand: the client joins its group before
	// NewClient has returned, and may hand out partitions by then.
	made chan struct{}

	mu    sync.Mutex
	owned map[int32]*partition
}

// partition is one that this process owns at present.
type partition struct {
	id  int32
	ctx context.Context // ends when it is taken away
	end context.CancelFunc

	mu      sync.Mutex // one apply at a time
	at      shard.Position
	missing bool // the shard has no row for it yet
}

// New makes a consumer; options are added to the client's (TLS, SASL, tracing hooks).
func New(cfg Config, store Store, clk clock.Clock, log *slog.Logger, reg prometheus.Registerer, options ...kgo.Opt) (*Consumer, error) {
	cfg = cfg.withDefaults()
	m, err := newMetrics(reg)
	if err != nil {
		return nil, err
	}
	c := &Consumer{cfg: cfg, store: store, clock: clk, log: log, metrics: m, owned: map[int32]*partition{}, made: make(chan struct{})}
	if cfg.Member != "" {
		options = append([]kgo.Opt{kgo.InstanceID(cfg.Member)}, options...)
	}
	c.client, err = kafka.New(cfg.Brokers, append([]kgo.Opt{
		kgo.ClientID(events.ClientID(cfg.Cell, "orders")),
		kgo.MetadataMinAge(events.MetadataMinAge), kgo.MetadataMaxAge(events.MetadataMaxAge), kgo.RetryBackoffFn(events.RetryBackoff),
		kgo.ConsumerGroup(events.GroupID(cfg.Cell)),
		kgo.ConsumeTopics(cfg.Topic),
		kgo.SessionTimeout(cfg.SessionTimeout),
		kgo.HeartbeatInterval(cfg.SessionTimeout / 4),
		kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()), // an offset outside the log is ours to judge
		kgo.AdjustFetchOffsetsFn(c.assigned),
		kgo.OnPartitionsRevoked(c.revoked),
		kgo.OnPartitionsLost(c.revoked),
		kgo.FetchMaxWait(250 * time.Millisecond),
	}, options...)...)
	if err != nil {
		return nil, fmt.Errorf("kafka client of the orders: %w", err)
	}
	c.admin = kadm.NewClient(c.client)
	close(c.made)
	return c, nil
}

func (c Config) withDefaults() Config {
	if c.Topic == "" {
		c.Topic = events.AdmissionsTopic(c.Cell)
	}
	if c.BatchMax <= 0 {
		c.BatchMax = 500
	}
	if c.SessionTimeout <= 0 {
		c.SessionTimeout = 6 * time.Second // the least that a broker of default settings accepts
	}
	if c.RetryMin <= 0 {
		c.RetryMin = 50 * time.Millisecond
	}
	if c.RetryMax < c.RetryMin {
		c.RetryMax = max(2*time.Second, c.RetryMin)
	}
	return c
}

// Applied counts the messages that got their outcome by this process; the gate measures the consume
// rate by it.
func (c *Consumer) Applied() int64 { return c.applied.Load() }

// Run consumes until ctx ends, then leaves the group.
func (c *Consumer) Run(ctx context.Context) error {
	defer c.leave(ctx)
	defer context.AfterFunc(ctx, c.endAll)()
	for {
		fetches := c.poll(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if fetches.IsClientClosed() {
			return kgo.ErrClientClosed
		}
		var wg sync.WaitGroup
		for id, records := range byPartition(fetches) {
			if own := c.partition(id); own != nil {
				wg.Go(func() { c.consume(own, records) }) //nolint:contextcheck // a partition has its own context, which ends when it is taken away
			}
		}
		wg.Wait()
		c.fetchesFailed(ctx, fetches) // after the records: they belong to the position that is looked at anew
		c.commitOffsets(ctx)
	}
}

// leaveTimeout bounds the farewell of a named member; without one its partitions wait for SessionTimeout.
const leaveTimeout = 2 * time.Second

// leave ends the client, which leaves the group, and does it for a named member too: the client leaves its
// place for it, and the other processes of the cell would wait for somebody who was stopped.
func (c *Consumer) leave(ctx context.Context) {
	defer c.client.Close()
	if c.cfg.Member == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	err := c.client.LeaveGroupContext(ctx) // no more heartbeats: they would join anew
	if err == nil {
		var left kadm.LeaveGroupResponses
		if left, err = c.admin.LeaveGroup(ctx, kadm.LeaveGroup(events.GroupID(c.cfg.Cell)).InstanceIDs(c.cfg.Member)); err == nil {
			err = left.Error()
		}
	}
	if err != nil {
		c.log.Warn("left without a word: the partitions wait for the session to end", telemetry.Event, "orders_leave_failed", telemetry.Error, err)
	}
}

// poll fetches what is there; a small batch waits once for more.
func (c *Consumer) poll(ctx context.Context) kgo.Fetches {
	limit := c.cfg.BatchMax * max(1, c.partitions())
	fetches := c.client.PollRecords(ctx, limit)
	if n := fetches.NumRecords(); n == 0 || n >= limit || c.cfg.BatchWait <= 0 {
		return fetches
	}
	if c.clock.Sleep(ctx, c.cfg.BatchWait) != nil {
		return fetches
	}
	more, cancel := context.WithCancel(ctx)
	cancel() // only what is buffered by now
	for _, f := range c.client.PollRecords(more, limit-fetches.NumRecords()) {
		if len(f.Topics) > 0 {
			fetches = append(fetches, f)
		}
	}
	return fetches
}

// byPartition joins what two polls brought of one partition, in the order of the log. Applied apart and
// at once, the later half could advance the position over the earlier one's messages.
func byPartition(fetches kgo.Fetches) map[int32][]*kgo.Record {
	out := map[int32][]*kgo.Record{}
	fetches.EachPartition(func(p kgo.FetchTopicPartition) {
		if len(p.Records) > 0 {
			out[p.Partition] = append(out[p.Partition], p.Records...)
		}
	})
	return out
}

func (c *Consumer) partition(id int32) *partition {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.owned[id]
}

func (c *Consumer) partitions() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.owned)
}

// assigned is called when partitions are handed to this process: each goes on where the shard says.
func (c *Consumer) assigned(ctx context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	select {
	case <-c.made:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	for id := range offsets[c.cfg.Topic] {
		at, missing, err := c.resolve(ctx, id)
		if err != nil {
			return nil, err
		}
		pctx, end := context.WithCancel(context.WithoutCancel(ctx))
		c.mu.Lock()
		if old := c.owned[id]; old != nil {
			old.end()
		}
		c.owned[id] = &partition{id: id, ctx: pctx, end: end, at: at, missing: missing}
		c.mu.Unlock()
		offsets[c.cfg.Topic][id] = kgo.NewOffset().At(at.Next).WithEpoch(-1)
		c.log.Info("partition assigned", telemetry.Event, "orders_assigned", telemetry.Topic, c.cfg.Topic, telemetry.Partition, id, telemetry.Offset, at.Next)
	}
	return offsets, nil
}

// revoked ends what is under way for partitions that another process has now.
func (c *Consumer) revoked(_ context.Context, _ *kgo.Client, gone map[string][]int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range gone[c.cfg.Topic] {
		if p := c.owned[id]; p != nil {
			p.end()
			delete(c.owned, id)
		}
	}
}

// endAll ends what is under way everywhere, so that nobody waits for a shard that is away.
func (c *Consumer) endAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.owned {
		p.end()
	}
}

// fetchesFailed handles what the log says against our positions. The client holds on to the topic id it
// knew: a topic that was made anew under the same name is given up and taken again, and its partitions
// are resolved as they are handed out.
func (c *Consumer) fetchesFailed(ctx context.Context, fetches kgo.Fetches) {
	anew := false
	fetches.EachError(func(topic string, id int32, err error) {
		if errors.Is(err, kerr.UnknownTopicID) {
			anew = true
			return
		}
		c.fetchFailed(ctx, topic, id, err)
	})
	if !anew {
		return
	}
	c.log.Error("the topic was made anew; taking it again", telemetry.Event, "orders_topic_anew", telemetry.Topic, c.cfg.Topic)
	c.client.PurgeTopicsFromClient(c.cfg.Topic)
	c.client.AddConsumeTopics(c.cfg.Topic)
	_ = c.clock.Sleep(ctx, c.cfg.RetryMax) // at most one rebalance in that time
}

// fetchFailed looks at position and log again.
func (c *Consumer) fetchFailed(ctx context.Context, topic string, id int32, err error) {
	if errors.Is(err, context.Canceled) || errors.Is(err, kgo.ErrClientClosed) {
		return
	}
	c.log.Warn("fetch failed", telemetry.Event, "orders_fetch_failed", telemetry.Topic, topic, telemetry.Partition, id, telemetry.Error, err)
	if p := c.partition(id); p != nil {
		if c.clock.Sleep(ctx, c.cfg.RetryMin) == nil {
			c.reseek(p)
		}
	}
}

// commitOffsets tells Kafka, for lag tools, what the shard has. Nothing depends on it.
func (c *Consumer) commitOffsets(ctx context.Context) {
	offsets := map[int32]kgo.EpochOffset{}
	c.mu.Lock()
	for id, p := range c.owned {
		p.mu.Lock()
		offsets[id] = kgo.EpochOffset{Epoch: -1, Offset: p.at.Next}
		p.mu.Unlock()
	}
	c.mu.Unlock()
	if len(offsets) > 0 {
		c.client.CommitOffsets(ctx, map[string]map[int32]kgo.EpochOffset{c.cfg.Topic: offsets}, nil)
	}
}
