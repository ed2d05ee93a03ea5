package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cellquota/cellquota/cell/events"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/kafka"
)

// deliveryTimeout bounds one row's stay in the driver.
const deliveryTimeout = 10 * time.Second

// EventLog produces events to cellquota.events: acks=all, idempotent, rows of one
// aggregate to one partition, in order.
type EventLog struct {
	client *kgo.Client
	cell   ids.CellID
}

// NewEventLog makes the producer of a cell's events; it dials on first use.
func NewEventLog(cell ids.CellID, brokers []string, options ...kgo.Opt) (*EventLog, error) {
	client, err := kafka.New(brokers, append([]kgo.Opt{
		kgo.ClientID(events.ClientID(cell, "outbox")),
		kgo.MetadataMinAge(events.MetadataMinAge), kgo.MetadataMaxAge(events.MetadataMaxAge), kgo.RetryBackoffFn(events.RetryBackoff),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)),
		kgo.ProducerLinger(2 * time.Millisecond),
		kgo.RecordDeliveryTimeout(deliveryTimeout),
	}, options...)...)
	if err != nil {
		return nil, fmt.Errorf("kafka producer of events: %w", err)
	}
	return &EventLog{client: client, cell: cell}, nil
}

// Close ends the client; rows under way stay in the outbox.
func (l *EventLog) Close() { l.client.Close() }

// NewEventPublisher makes the loop that brings events to the log.
func NewEventPublisher(cfg Config, store Store, log *EventLog, deps Deps) *Publisher {
	return newPublisher(cfg, targetEvents, store, log, deps)
}

func (l *EventLog) deliver(ctx context.Context, writer shard.Writer, rows []shard.OutboxRow) []answer {
	records := make([]*kgo.Record, len(rows))
	at := make(map[*kgo.Record]int, len(rows))
	for i, row := range rows {
		records[i] = &kgo.Record{
			Topic: events.OrderEventsTopic, Key: []byte(row.Aggregate), Value: row.Payload,
			Headers: events.Headers{
				EventID: events.OutboxEventID(l.cell, row.ID), Type: row.EventType,
				FenceVersion: writer.FenceVersion, Traceparent: row.Traceparent,
			}.Render(),
		}
		at[records[i]] = i
	}
	answers := make([]answer, len(rows))
	anew := false
	for _, r := range l.client.ProduceSync(ctx, records...) {
		answers[at[r.Record]] = judgeRecord(r.Err)
		anew = anew || errors.Is(r.Err, kerr.UnknownTopicID)
	}
	if anew { // the topic was made anew, and the client would hold on to the id it knew
		l.client.PurgeTopicsFromProducing(events.OrderEventsTopic)
	}
	return answers
}

// judgeRecord tells a row that the log will never take from a log that takes nothing.
func judgeRecord(err error) answer {
	switch {
	case err == nil:
		return answer{}
	case errors.Is(err, kerr.MessageTooLarge), errors.Is(err, kerr.InvalidRecord), errors.Is(err, kerr.RecordListTooLarge):
		return answer{never, err}
	default:
		return answer{held, err}
	}
}
