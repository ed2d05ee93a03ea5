package topics_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/topics"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/testkit"
)

func TestEnsure(t *testing.T) {
	kafka := testkit.Kafka(t, 1)
	ctx := testkit.Deadline(t)
	spec := core.KafkaSpec{Brokers: kafka.Brokers(), Topic: "cellquota.admissions.cell-1", Partitions: 2, Replication: 1}
	for range 2 {
		if err := (topics.Kafka{}).Ensure(ctx, spec); err != nil {
			t.Fatal(err)
		}
	}
	listed, err := kadm.NewClient(kafka.Client(t)).ListTopics(ctx, spec.Topic, topics.Events)
	if err != nil || len(listed[spec.Topic].Partitions) != 2 || len(listed[topics.Events].Partitions) == 0 {
		t.Fatalf("%v, %v", listed, err)
	}
	spec.Partitions = 3
	if err := (topics.Kafka{}).Ensure(ctx, spec); !errors.Is(err, rpcstatus.ErrFailedPrecondition) {
		t.Fatalf("other partitions: %v", err)
	}
	kafka.Stop(t)
	short, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	if err := (topics.Kafka{}).Ensure(short, spec); !errors.Is(err, rpcstatus.ErrUnavailable) {
		t.Fatalf("no broker: %v", err)
	}
}
