package layout

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/cellquota/cellquota/internal/clock"
)

// With --tls every process has a certificate of the platform's authority under its own
// name, which says what it is; no key is for others to read, and nothing is configured to
// speak plain text. Apache Kafka is not encrypted, and says so.
func TestEncryptedPlatform(t *testing.T) {
	o := Defaults()
	o.DataDir, o.TLS, o.ControlPlanes, o.Etcd = t.TempDir(), true, 3, EtcdCluster3
	p, err := New(o, func(string) string { return "127.0.0.1:1" })
	if err != nil {
		t.Fatal(err)
	}
	if err := p.MakeCertificates(clock.System().Now()); err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(p.CAFile())
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	for process, name := range map[string]string{
		"controlplane-3": "spiffe://cellquota/controlplane/controlplane-3", "edge-1": "spiffe://cellquota/edge/edge-1",
		"cell-1/p1": "spiffe://cellquota/cell/cell-1", "etcd-2": "", "kafka": "", "cell-1/redis": "", "cell-1/postgres": "", Operator: "",
	} {
		files := p.Identity(process)
		pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
		if err != nil {
			t.Errorf("%s: %v", process, err)
			continue
		}
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: pool, DNSName: "127.0.0.1"}); err != nil {
			t.Errorf("%s: %v", process, err)
		}
		if got := len(pair.Leaf.URIs); (name == "") != (got == 0) || got == 1 && pair.Leaf.URIs[0].String() != name {
			t.Errorf("%s is named %v, want %q", process, pair.Leaf.URIs, name)
		}
		if info, err := os.Stat(files.Key); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: the key's mode is %v (%v)", process, info.Mode(), err)
		}
	}
	secrets, err := p.MakeSecrets()
	if err != nil {
		t.Fatal(err)
	}
	text := []string{p.redis(p.Cells[0]), p.Postgres(p.Cells[0]), p.DSN(secrets, p.Cells[0], RoleApp), strings.Join(p.EtcdArgs(p.Etcd.Members[0], secrets), " "), strings.Join(p.KafkaArgs(secrets, Programs{}), " ")}
	for i, want := range []string{"\nport 0\n", "ssl = on", "sslmode=verify-full&sslrootcert=", "--cert-file", "--cert-file"} {
		if !strings.Contains(text[i], want) {
			t.Errorf("%q is missing in:\n%s", want, text[i])
		}
	}
	e := p.Endpoints(secrets)
	if e.TLS == nil || !strings.HasPrefix(e.Edges[0].HTTP, "https://") || !strings.HasPrefix(e.Cells[0].Metrics, "https://") {
		t.Errorf("endpoints: %+v", e)
	}
	o.Kafka = ApacheKafka
	if err := o.Check(); !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "--tls") {
		t.Errorf("Apache Kafka with --tls: %v", err)
	}
}
