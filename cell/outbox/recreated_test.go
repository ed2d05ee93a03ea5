package outbox_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/cellquota/cellquota/cell/events"
	"github.com/cellquota/cellquota/cell/outbox"
	"github.com/cellquota/cellquota/internal/testkit"
)

// Events go to a topic that was made anew under the same name without a restart of their publisher.
func TestAnEventTopicMadeAnew(t *testing.T) {
	b := newBench(t)
	kafka := testkit.Kafka(t, 1)
	log, err := outbox.NewEventLog("cell-1", kafka.Brokers())
	b.must(err)
	t.Cleanup(log.Close)
	publisher := outbox.NewEventPublisher(outbox.Config{Owner: "p"}, b.store, log, b.deps)
	for range 2 {
		kafka.CreateTopic(t, events.OrderEventsTopic, 1)
		_, err := b.db.Conn(t).Exec(b.ctx, `INSERT INTO cellquota.outbox (target, aggregate, event_type, campaign_id, sku_id, payload, created_at)
			VALUES ('EVENTS', 'req/1', 'order-paid', $1, $2, 'x', cellquota.now())`, campaign, phone)
		b.must(err)
		testkit.Eventually(t, 30*time.Second, func() error {
			err := drain(b, publisher)
			if pending, _ := b.waiting("EVENTS"); pending != 0 {
				return fmt.Errorf("%d events wait: %w", pending, err)
			}
			return err
		})
		kafka.DeleteTopic(t, events.OrderEventsTopic)
	}
}
