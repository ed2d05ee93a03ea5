//go:build system

package system

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cellquota/cellquota/internal/testkit"
)

// The whole platform without a word of plain text and without dev: it sells, and on every listener a client
// that does not speak TLS is hung up on.
func TestEverythingIsEncrypted(t *testing.T) {
	p := start(t, "--cells", "1", "--tls")
	p.publish(sale{ID: "sealed", Limit: 20, Reserve: 0, TTL: "10m"})
	if code := <-p.load(t.Context(), "--campaign", "sealed", "--users", "20", "--rate", "20", "--pay", "1"); code != 0 {
		t.Errorf("the load ended with %d", code)
	}
	e := p.endpoints()
	testkit.Eventually(t, 20*time.Second, func() error {
		var paid int
		conn, err := pgx.Connect(t.Context(), e.Cells[0].Postgres)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close(t.Context()) }()
		if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM cellquota.v_orders WHERE state = 'PAID'").Scan(&paid); err != nil {
			return err
		}
		if paid == 0 {
			return fmt.Errorf("nothing is paid")
		}
		return nil
	})
	if out := p.must("status"); !strings.Contains(out, "etcd.tls") || !strings.Contains(out, "spiffe://cellquota/controlplane/controlplane-1") {
		t.Errorf("status names no certificates:\n%s", out)
	}
	if out := p.must("cell", "check", "cell-1", "-o", "json"); !strings.Contains(out, `"ok": true`) && !strings.Contains(out, `"ok":true`) {
		t.Errorf("the cell is not as it must be:\n%s", out)
	}
	listeners := map[string]string{
		"etcd": e.Etcd.Endpoints[0], "kafka": e.Kafka.Brokers[0], "redis": e.Cells[0].Redis, "a cell": e.Cells[0].GRPC, "the control plane": e.ControlPlanes[0].GRPC,
		"an edge": strings.TrimPrefix(e.Edges[0].HTTP, "https://"), "its metrics": strings.TrimPrefix(e.Edges[0].Metrics, "https://"),
		"a cell's metrics": strings.TrimPrefix(e.Cells[0].Metrics, "https://"), "the control plane's metrics": strings.TrimPrefix(e.ControlPlanes[0].Metrics, "https://"),
	}
	for name, addr := range listeners {
		t.Run(name, func(t *testing.T) { refusesPlainText(t, addr) })
	}
	plain := strings.Split(e.Cells[0].Postgres, "?")[0] + "?sslmode=disable"
	if conn, err := pgx.Connect(testkit.Deadline(t), plain); err == nil {
		_ = conn.Close(t.Context())
		t.Error("PostgreSQL let a plain-text client in")
	}
}

// refusesPlainText sends what each of the servers would answer in plain text, and wants at most an alert of TLS
// or HTTP's "you speak HTTP to an HTTPS server"; then TLS, which must be understood.
func refusesPlainText(t *testing.T, addr string) {
	t.Helper()
	for _, words := range []string{"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "PING\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"} {
		conn, err := net.DialTimeout("tcp", addr, 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
		_, _ = conn.Write([]byte(words))
		var got bytes.Buffer
		_, _ = got.ReadFrom(conn)
		_ = conn.Close()
		if got.Len() > 16 && !strings.HasPrefix(got.String(), "HTTP/1.0 400") {
			t.Errorf("%q was answered with %.80q", words[:4], got.String())
		}
	}
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: 5 * time.Second}, "tcp", addr, &tls.Config{InsecureSkipVerify: true})
	if err != nil && !strings.Contains(err.Error(), "certificate required") {
		t.Errorf("TLS is not understood: %v", err)
	}
	if err == nil {
		_ = conn.Close()
	}
}
