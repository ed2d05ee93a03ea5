package testkit

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// KafkaCluster is a kfake cluster of one test: Kafka's protocol on loopback with
// records on disk, but without replication, quotas or a broker's timing. What
// must hold on Apache Kafka is tested there too.
type KafkaCluster struct {
	cluster *kfake.Cluster // nil while stopped
	options []kfake.Opt
	addrs   []string
}

// Kafka starts a cluster of so many brokers, without topics (nothing creates
// them by itself). It is gone when the test ends.
func Kafka(t testing.TB, brokers int) *KafkaCluster {
	t.Helper()
	return KafkaWith(t, brokers)
}

// KafkaWith is Kafka with options of kfake: TLS, SASL.
func KafkaWith(t testing.TB, brokers int, options ...kfake.Opt) *KafkaCluster {
	t.Helper()
	if brokers < 1 {
		t.Fatalf("a Kafka cluster has at least one broker, not %d", brokers)
	}
	ports := make([]int, brokers)
	for i := range ports {
		ports[i] = FreePort(t)
	}
	k := &KafkaCluster{options: append([]kfake.Opt{kfake.NumBrokers(brokers), kfake.Ports(ports...), kfake.DataDir(t.TempDir())}, options...)}
	k.Start(t)
	t.Cleanup(func() { k.Stop(t) })
	return k
}

// Brokers are the addresses host:port of all brokers; they stay the same over
// Stop and Start.
func (k *KafkaCluster) Brokers() []string { return k.addrs }

// Fake is kfake's own handle, for its fault controls (ControlKey, Fault,
// MoveTopicPartition); it changes with Start.
func (k *KafkaCluster) Fake() *kfake.Cluster { return k.cluster }

// CreateTopic makes a topic with so many partitions.
func (k *KafkaCluster) CreateTopic(t testing.TB, topic string, partitions int32) {
	t.Helper()
	if err := k.cluster.CreateTopic(topic, partitions, nil); err != nil {
		t.Fatalf("create topic %s: %v", topic, err)
	}
}

// DeleteTopic removes a topic; one of the same name made later has another id.
func (k *KafkaCluster) DeleteTopic(t testing.TB, topic string) {
	t.Helper()
	if err := k.cluster.DeleteTopic(topic); err != nil {
		t.Fatalf("delete topic %s: %v", topic, err)
	}
}

// Client is a new client of the cluster, closed when the test ends.
func (k *KafkaCluster) Client(t testing.TB, options ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(k.addrs...)}, options...)...)
	if err != nil {
		t.Fatalf("client of Kafka: %v", err)
	}
	t.Cleanup(client.Close)
	return client
}

// Stop closes every broker; topics, records and offsets stay on disk.
func (k *KafkaCluster) Stop(t testing.TB) {
	t.Helper()
	if k.cluster != nil {
		k.cluster.Close()
		k.cluster = nil
	}
}

// Start starts the brokers again after Stop, on the same addresses and data.
func (k *KafkaCluster) Start(t testing.TB) {
	t.Helper()
	cluster, err := kfake.NewCluster(k.options...)
	if err != nil {
		t.Fatalf("start Kafka: %v", err)
	}
	k.cluster, k.addrs = cluster, cluster.ListenAddrs()
}
