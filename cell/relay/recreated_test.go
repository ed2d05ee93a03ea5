package relay_test

import (
	"errors"
	"testing"
	"time"

	"github.com/cellquota/cellquota/cell/relay"
	"github.com/cellquota/cellquota/internal/testkit"
)

// A topic that was made anew under the same name takes admissions again, without a restart of the
// process that produces (K18).
func TestATopicMadeAnewUnderARunningProducer(t *testing.T) {
	r := newRig(t, relay.Config{DeliveryTimeout: time.Second})
	r.run(t, r.producer.Run)
	if errs := r.produce(t, r.admit(t, "before", 5)); len(errs) != 0 {
		t.Fatal(errs[0])
	}
	r.kafka.DeleteTopic(t, topic)
	r.kafka.CreateTopic(t, topic, 2)
	list := r.admit(t, "after", 5)
	testkit.Eventually(t, 20*time.Second, func() error { return errors.Join(r.produce(t, list)...) })
	r.consume(t, idsOf(list))
}
