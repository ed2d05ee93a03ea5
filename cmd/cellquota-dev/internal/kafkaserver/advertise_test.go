package kafkaserver

import (
	"context"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cellquota/cellquota/internal/testkit"
	"github.com/cellquota/cellquota/internal/testkit/fault"
)

// Clients are sent to the address that is advertised, the wire before the broker; what is cut there is
// cut for them.
func TestClientsAreSentThroughTheWire(t *testing.T) {
	addr, dir := free(t), t.TempDir()
	wire := fault.New(t, addr)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- Run(ctx, Config{
			DataDir: dir, Addr: addr, ClusterID: "4L6g3nShT-eMCtK--X86sw", Log: t.Output(),
			BrokerConfigs: map[string]string{advertisedListeners: "PLAINTEXT://" + wire.Addr()},
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	client, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	testkit.Eventually(t, 10*time.Second, func() error { return client.Ping(ctx) })
	metadata, err := kmsg.NewPtrMetadataRequest().RequestWith(ctx, client)
	if err != nil {
		t.Fatal(err)
	}
	if len(metadata.Brokers) != 1 {
		t.Fatalf("%d brokers", len(metadata.Brokers))
	}
	b := metadata.Brokers[0]
	if told := net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port))); told != wire.Addr() {
		t.Errorf("clients are sent to %s, the wire is %s", told, wire.Addr())
	}
}

// An address that is none is refused before anything listens.
func TestAdvertisedListeners(t *testing.T) {
	for _, bad := range []string{"127.0.0.1:9", "PLAINTEXT://localhost:9", "PLAINTEXT://127.0.0.1", "SSL://127.0.0.1:9"} {
		if _, err := listener(bad); err == nil || !strings.Contains(err.Error(), "PLAINTEXT://address:port") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}
