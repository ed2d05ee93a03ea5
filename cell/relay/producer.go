package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cellquota/cellquota/cell/admission"
	"github.com/cellquota/cellquota/cell/events"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/kafka"
	"github.com/cellquota/cellquota/internal/telemetry"
	eventsv1 "github.com/cellquota/cellquota/proto/cellquota/events/v1"
)

var (
	// ErrNotAcknowledged: the log did not take the record, or nobody knows. The
	// stream entry stays; producing again under the same id is safe.
	ErrNotAcknowledged = errors.New("relay: not acknowledged by the log")
	// ErrBacklog: the driver's buffer is full; the sweeper will come back to it.
	ErrBacklog = errors.New("relay: too many records wait for the log")
)

// Config of a Producer. Zero values are the defaults.
type Config struct {
	Cell            ids.CellID
	Brokers         []string
	Topic           string        // "": events.AdmissionsTopic(Cell)
	Partitions      int           // of the topic; 0: 1
	Linger          time.Duration // 0: 1 ms
	DeliveryTimeout time.Duration // 0: 10 s, at least 1 s; then the record fails and the sweeper takes over
	MaxBuffered     int           // records in the driver; 0: 20,000
}

const (
	defaultLinger   = time.Millisecond
	defaultDelivery = 10 * time.Second
	defaultBuffered = 20_000
	ackQueue        = 8192
	ackBatch        = 256
)

// Acker is the mirror as the producer needs it.
type Acker interface {
	// Acked drops the stream entries of admissions the log has.
	Acked(ctx context.Context, list []admission.Granted) error
}

// Producer produces admissions and barriers: acks=all, idempotent, to the partition
// of the SKU. Safe for concurrent use. Run must be running for stream entries to go.
type Producer struct {
	client     *kgo.Client
	topic      string
	partitions int
	mirror     Acker
	clock      clock.Clock
	log        *slog.Logger
	metrics    *Metrics
	acks       chan admission.Granted
	anew       chan struct{} // the topic has another id now; of room one

	mu       sync.Mutex
	inFlight map[ids.ReservationID][]func(error)
}

// Deps of the parts of this package.
type Deps struct {
	Clock   clock.Clock
	Logger  *slog.Logger
	Metrics *Metrics
}

// NewProducer makes a producer; it dials on first use. Close it when every caller
// of Produce is done.
func NewProducer(cfg Config, mirror Acker, deps Deps, options ...kgo.Opt) (*Producer, error) {
	if cfg.Topic == "" {
		cfg.Topic = events.AdmissionsTopic(cfg.Cell)
	}
	cfg.Partitions = max(cfg.Partitions, 1)
	client, err := kafka.New(cfg.Brokers, append([]kgo.Opt{
		kgo.ClientID(events.ClientID(cfg.Cell, "relay")),
		kgo.MetadataMinAge(events.MetadataMinAge), kgo.MetadataMaxAge(events.MetadataMaxAge), kgo.RetryBackoffFn(events.RetryBackoff),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(orElse(cfg.Linger, defaultLinger)),
		kgo.RecordDeliveryTimeout(orElse(cfg.DeliveryTimeout, defaultDelivery)),
		kgo.MaxBufferedRecords(orElse(cfg.MaxBuffered, defaultBuffered)),
	}, options...)...)
	if err != nil {
		return nil, fmt.Errorf("kafka producer: %w", err)
	}
	return &Producer{
		client: client, topic: cfg.Topic, partitions: cfg.Partitions, mirror: mirror,
		clock: deps.Clock, log: deps.Logger, metrics: deps.Metrics,
		acks: make(chan admission.Granted, ackQueue), anew: make(chan struct{}, 1), inFlight: map[ids.ReservationID][]func(error){},
	}, nil
}

func orElse[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}

// Close flushes nothing (the stream has it all) and ends the client.
func (p *Producer) Close() { p.client.Close() }

// Produce hands admissions to the driver and returns at once. done is called once
// per admission from another goroutine, with nil when the log acknowledged it; it
// must not block. An admission that is already on its way is not sent twice: its
// done waits for the same answer. The customer's context has no part in it: once
// granted, an admission goes out.
func (p *Producer) Produce(list []admission.Granted, done func(admission.Granted, error)) {
	for _, g := range list {
		p.send(g, func(err error) {
			if err == nil {
				p.queueAck(g)
			}
			done(g, err)
		})
	}
}

// send produces one admission; waiters of the same reservation share the answer.
func (p *Producer) send(g admission.Granted, done func(error)) {
	p.mu.Lock()
	waiting, sent := p.inFlight[g.Reservation]
	p.inFlight[g.Reservation] = append(waiting, done)
	p.mu.Unlock()
	if sent {
		return
	}
	started := p.clock.Now()
	p.client.TryProduce(context.Background(), p.record(g), func(_ *kgo.Record, err error) {
		if err == nil {
			p.metrics.published.Inc()
			p.metrics.duration.Observe(p.clock.Now().Sub(started).Seconds())
		}
		p.doubtTopic(err)
		p.settle(g.Reservation, translate(err))
	})
}

// doubtTopic has Run look for the topic anew when the log says that its id is gone: the client holds on
// to the id it knew and would refuse every record of a topic that was made anew under the same name.
func (p *Producer) doubtTopic(err error) {
	if !errors.Is(err, kerr.UnknownTopicID) {
		return
	}
	select {
	case p.anew <- struct{}{}:
	default:
	}
}

func (p *Producer) settle(id ids.ReservationID, err error) {
	p.mu.Lock()
	waiting := p.inFlight[id]
	delete(p.inFlight, id)
	p.mu.Unlock()
	for _, done := range waiting {
		done(err)
	}
}

// onItsWay reports whether this process has an admission in the driver's buffer.
func (p *Producer) onItsWay(id ids.ReservationID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.inFlight[id]
	return ok
}

func (p *Producer) record(g admission.Granted) *kgo.Record {
	return &kgo.Record{
		Topic: p.topic, Partition: events.Partition(g.Scope.Campaign, g.SKU, p.partitions), Value: g.Message,
		Headers: events.Headers{
			EventID: ids.EventID(g.Reservation), Type: events.TypeAdmission, FenceVersion: g.Build.Fence, Traceparent: g.Traceparent,
		}.Render(),
	}
}

func translate(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, kgo.ErrMaxBuffered):
		return fmt.Errorf("%w: %w", ErrBacklog, err)
	default:
		return fmt.Errorf("%w: %w", ErrNotAcknowledged, err)
	}
}

// queueAck hands an acknowledged admission to Run. A full queue drops it: its entry
// stays and is produced once more, which is harmless.
func (p *Producer) queueAck(g admission.Granted) {
	select {
	case p.acks <- g:
	default:
	}
}

// Run drops the stream entries of acknowledged admissions, in batches, until ctx
// ends, and lets the client forget a topic that was made anew: what it had of it
// fails, and the sweeper brings it to the new one.
func (p *Producer) Run(ctx context.Context) error {
	batch := make([]admission.Granted, 0, ackBatch)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.anew:
			p.log.Error("the topic was made anew; admissions go to the new one", telemetry.Event, "relay_topic_anew", telemetry.Topic, p.topic)
			p.client.PurgeTopicsFromProducing(p.topic)
			continue
		case g := <-p.acks:
			batch = append(batch[:0], g)
		}
		for more := true; more && len(batch) < ackBatch; {
			select {
			case g := <-p.acks:
				batch = append(batch, g)
			default:
				more = false
			}
		}
		if err := p.mirror.Acked(ctx, batch); err != nil && ctx.Err() == nil {
			p.log.Warn("stream entries stay after their acknowledgement", telemetry.Event, "relay_ack_failed",
				"entries", len(batch), telemetry.Error, err, telemetry.Retryable, true)
		}
	}
}

// Barrier writes the barrier of a build into every partition and returns when all
// are acknowledged. A repeat is harmless: a barrier consumed twice raises nothing
// twice.
func (p *Producer) Barrier(ctx context.Context, scope admission.Scope, build ids.Build) error {
	records := make([]*kgo.Record, p.partitions)
	for i := range records {
		value, err := events.EncodeBarrier(&eventsv1.Barrier{
			CampaignId: string(scope.Campaign), SkuId: string(scope.SKU), Build: events.ProtoBuild(build),
			Partition: int32(i), Partitions: int32(p.partitions),
		})
		if err != nil {
			return err
		}
		records[i] = &kgo.Record{
			Topic: p.topic, Partition: int32(i), Value: value,
			Headers: events.Headers{
				EventID: events.BarrierID(scope.Campaign, scope.SKU, build, int32(i)), Type: events.TypeBarrier, FenceVersion: build.Fence,
			}.Render(),
		}
	}
	if err := p.client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		p.doubtTopic(err)
		return translate(err)
	}
	return nil
}
