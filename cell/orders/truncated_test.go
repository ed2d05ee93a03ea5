package orders_test

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/cellquota/cellquota/cell/events"
)

// TestK51ALogWithoutItsOldest: records beyond the stored position are deleted while nobody consumes. The
// consumer that starts then does not jump to the log's end: it says so, goes on at the log's start, and
// every record that is left becomes an order.
func TestK51ALogWithoutItsOldest(t *testing.T) {
	b := newBench(t, 1)
	_, _, stop := b.consume(b.store)
	for i := range 10 {
		b.produce(b.record(fmt.Sprintf("u%d", i), "r", 0))
	}
	b.eventually(10, "orders")
	stop()
	for i := 10; i < 30; i++ {
		b.produce(b.record(fmt.Sprintf("u%d", i), "r", 0))
	}
	topic := events.AdmissionsTopic(cell)
	offsets := kadm.Offsets{}
	offsets.AddOffset(topic, 0, 15, -1)
	if _, err := kadm.NewClient(b.producer).DeleteRecords(b.ctx, offsets); err != nil {
		t.Fatal(err)
	}
	_, reg, _ := b.consume(b.store)
	b.eventually(25, "orders")
	b.eventually(1, "positions WHERE next_offset = 30")
	if n := one(t, reg, "cellquota_order_position_mismatches_total"); n != 1 {
		t.Errorf("%v mismatches were counted", n)
	}
}
