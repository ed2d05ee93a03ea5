package orders_test

import (
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestDeadProcessHoldsItsPartitionsForSeconds: a process that is killed leaves the group by its session
// time-out alone. With the client's default of 45 s the cell made no order for that long after a kill.
func TestDeadProcessHoldsItsPartitionsForSeconds(t *testing.T) {
	b := newBench(t, 1)
	var asked atomic.Int32
	b.kafka.Fake().ControlKey(kmsg.JoinGroup.Int16(), func(request kmsg.Request) (kmsg.Response, error, bool) {
		b.kafka.Fake().KeepControl()
		if join, ok := request.(*kmsg.JoinGroupRequest); ok {
			asked.Store(join.SessionTimeoutMillis)
		}
		return nil, nil, false
	})
	b.consume(b.store)
	b.produce(b.record("alice", "r1", 0))
	b.eventually(1, "v_orders")
	if got := asked.Load(); got != 6000 {
		t.Errorf("the group keeps a dead process's partitions for %d ms, want 6000", got)
	}
}
