package relay_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cellquota/cellquota/cell/relay"
)

// a broker that has lost track of the producer (OUT_OF_ORDER_SEQUENCE_NUMBER, UNKNOWN_PRODUCER_ID: lost
// acknowledgements, a new leader without its state) refuses batches. The client takes a new producer id and
// sends again: everything is acknowledged well before a record is given up, and is in the log once or more.
func TestALostSequenceIsTakenUpAnew(t *testing.T) {
	for _, refusal := range []*kerr.Error{kerr.OutOfOrderSequenceNumber, kerr.UnknownProducerID} {
		t.Run(refusal.Message, func(t *testing.T) {
			r := newRig(t, relay.Config{DeliveryTimeout: 10 * time.Second})
			if errs := r.produce(t, r.admit(t, "before", 20)); len(errs) != 0 {
				t.Fatal(errs[0])
			}
			var refused atomic.Int64
			r.kafka.Fake().ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
				if refused.Add(1) > 4 {
					refused.Add(-1)
					return nil, nil, false
				}
				r.kafka.Fake().KeepControl()
				return refuse(req.(*kmsg.ProduceRequest), refusal.Code), nil, true
			})
			started := time.Now()
			list := r.admit(t, "after", 200)
			if errs := r.produce(t, list); len(errs) != 0 {
				t.Fatalf("%d of 200 were given up: %v", len(errs), errs[0])
			}
			if took := time.Since(started); refused.Load() != 4 || took > 8*time.Second {
				t.Errorf("%d batches were refused, and all of it took %s", refused.Load(), took)
			}
		})
	}
}

// refuse answers every partition of a request with an error.
func refuse(req *kmsg.ProduceRequest, code int16) *kmsg.ProduceResponse {
	resp := req.ResponseKind().(*kmsg.ProduceResponse)
	for _, in := range req.Topics {
		topic := kmsg.NewProduceResponseTopic()
		topic.Topic, topic.TopicID = in.Topic, in.TopicID
		for _, p := range in.Partitions {
			out := kmsg.NewProduceResponseTopicPartition()
			out.Partition, out.ErrorCode, out.LogStartOffset = p.Partition, code, 0
			topic.Partitions = append(topic.Partitions, out)
		}
		resp.Topics = append(resp.Topics, topic)
	}
	return resp
}
