package orders_test

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cellquota/cellquota/cell/events"
)

// TestATopicMadeAnewUnderARunningConsumer: another topic of the same name is another log; the consumer
// that runs takes it from its start, without a restart of its process (K18, K51).
func TestATopicMadeAnewUnderARunningConsumer(t *testing.T) {
	b := newBench(t, 1)
	b.consume(b.store)
	for i := range 30 {
		b.produce(b.record(fmt.Sprintf("u%d", i), "r", 0))
	}
	b.eventually(30, "orders")
	b.kafka.DeleteTopic(t, events.AdmissionsTopic(cell))
	b.kafka.CreateTopic(t, events.AdmissionsTopic(cell), 1)
	b.producer = b.kafka.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	b.produce(b.record("u5", "r", 0), b.record("new-log", "r", 0))
	b.eventually(31, "orders")
	b.eventually(1, "positions WHERE next_offset = 2")
}
