package apachekafka

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A directory of another cluster is refused before a broker could mix the two.
func TestForeignDirectory(t *testing.T) {
	c := Config{DataDir: t.TempDir(), ClusterID: "4L6g3nShT-eMCtK--X86sw", Java: "java-that-is-not-run"}
	if id, err := c.formatted(); id != "" || err != nil {
		t.Fatalf("an empty directory has cluster %q, %v", id, err)
	}
	if err := os.MkdirAll(c.records(), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(c.records(), "meta.properties"), []byte("node.id=1\ncluster.id=other\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.format(t.Context(), c.Java); err == nil || !strings.Contains(err.Error(), "belongs to cluster other") {
		t.Errorf("format of a foreign directory: %v", err)
	}
	c.ClusterID = "other"
	if err := c.format(t.Context(), c.Java); err != nil {
		t.Errorf("format of its own directory: %v", err)
	}
}

// A setting of the platform's user wins, and the file is the same every time.
func TestBrokerProperties(t *testing.T) {
	c := Config{DataDir: "/d", Addr: "127.0.0.1:1", ControllerAddr: "127.0.0.1:2", BrokerConfigs: map[string]string{"node.id": "7", "log.retention.ms": "5"}}
	text := c.brokerProperties()
	for _, want := range []string{"node.id=7\n", "log.retention.ms=5\n", "log.dirs=/d/records\n", "advertised.listeners=PLAINTEXT://127.0.0.1:1\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("server.properties lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "node.id=1\n") || text != c.brokerProperties() {
		t.Error("server.properties is not what was asked for, or differs between two starts")
	}
}
