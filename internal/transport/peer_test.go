package transport_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/testkit"
	"github.com/cellquota/cellquota/internal/transport"
)

// nobody is an identity without files: nothing in it ends.
func nobody(t *testing.T) *transport.TLS {
	t.Helper()
	identity, err := transport.LoadTLS(transport.TLSFiles{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return identity
}

func loaded(t *testing.T, f testkit.PEMFiles) *transport.TLS {
	t.Helper()
	identity, err := transport.LoadTLS(transport.TLSFiles{CertFile: f.Cert, KeyFile: f.Key, CAFile: f.CA}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return identity
}

// A server whose certificate is good, and another's, is not who was called: cell-1
// cannot answer for cell-2, nor an edge for the control plane. Ended certificates and
// strangers' are nobody's.
func TestServersAreWhoWasCalled(t *testing.T) {
	ca := testkit.NewAuthority(t)
	me := loaded(t, ca.Issue(t.TempDir(), "spiffe://cellquota.test/edge/e1"))
	cell1 := ca.Issue(t.TempDir(), "spiffe://cellquota.test/cell/cell-1")
	ended := ca.IssueUntil(t.TempDir(), time.Now().Add(-time.Minute), "spiffe://cellquota.test/cell/cell-1")
	stranger := testkit.NewAuthority(t).Issue(t.TempDir(), "spiffe://cellquota.test/cell/cell-1")
	for _, row := range []struct {
		name   string
		server testkit.PEMFiles
		peer   transport.Peer
		want   error
	}{
		{"cell-1 as itself", cell1, transport.Peer{Domain: "cellquota.test", Workload: "cell/cell-1"}, nil},
		{"cell-1 as any cell", cell1, transport.Peer{Domain: "cellquota.test", Workload: "cell/"}, nil},
		{"nobody in particular", cell1, transport.Peer{}, nil},
		{"cell-1 for cell-2", cell1, transport.Peer{Domain: "cellquota.test", Workload: "cell/cell-2"}, rpcstatus.ErrUnavailable},
		{"a cell for the control plane", cell1, transport.Peer{Domain: "cellquota.test", Workload: "controlplane/"}, rpcstatus.ErrUnavailable},
		{"another domain", cell1, transport.Peer{Domain: "elsewhere", Workload: "cell/cell-1"}, rpcstatus.ErrUnavailable},
		{"ended", ended, transport.Peer{}, rpcstatus.ErrUnavailable},
		{"a stranger's", stranger, transport.Peer{}, rpcstatus.ErrUnavailable},
	} {
		t.Run(row.name, func(t *testing.T) {
			addr, _ := secured(t, loaded(t, row.server))
			err := ask(t, dial(t, addr, transport.DialOptions{TLS: me, Peer: row.peer, DefaultTimeout: 10 * time.Second}))
			if !errors.Is(err, row.want) {
				t.Errorf("got %v, want %v", err, row.want)
			}
		})
	}
}

// Callers whose certificate has ended are refused; plain text is not understood.
func TestServersRefuse(t *testing.T) {
	ca := testkit.NewAuthority(t)
	addr, _ := secured(t, loaded(t, ca.Issue(t.TempDir(), "spiffe://cellquota.test/controlplane/cp")))
	ended := loaded(t, ca.IssueUntil(t.TempDir(), time.Now().Add(-time.Minute), "spiffe://cellquota.test/cell/cell-1"))
	if err := ask(t, dial(t, addr, transport.DialOptions{TLS: ended, DefaultTimeout: 10 * time.Second})); !errors.Is(err, rpcstatus.ErrUnavailable) {
		t.Errorf("an ended certificate: %v", err)
	}
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := conn.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	got := new(bytes.Buffer)
	if _, err := got.ReadFrom(conn); got.Len() > 16 { // a TLS alert at most
		t.Errorf("plain text was answered with %q, %v", got, err)
	}
}

// The end of a certificate is a metric, and a warning in its last 14 days.
func TestExpiry(t *testing.T) {
	ca := testkit.NewAuthority(t)
	for _, row := range []struct {
		left  time.Duration
		warns bool
	}{{15 * 24 * time.Hour, false}, {13 * 24 * time.Hour, true}} {
		end := time.Now().Add(row.left)
		log, reg := new(syncBuffer), prometheus.NewRegistry()
		e, err := transport.NewExpiry(clock.System(), log.logger(), reg)
		if err != nil {
			t.Fatal(err)
		}
		e.Add("none", nil)
		e.Add("http", nobody(t))
		e.Add("tls", loaded(t, ca.IssueUntil(t.TempDir(), end, "spiffe://cellquota.test/cell/cell-1")))
		if strings.Contains(log.String(), "certificate_expiring") != row.warns {
			t.Errorf("%s before the end: %s", row.left, log)
		}
		families, err := reg.Gather()
		if err != nil || len(families) != 1 || len(families[0].GetMetric()) != 2 || families[0].GetMetric()[0].GetGauge().GetValue() != float64(end.Unix()) {
			t.Errorf("metric: %v, %v", families, err)
		}
		var keys []string
		for _, one := range e.All() {
			keys = append(keys, one.Key+" "+one.Name)
		}
		if want := []string{"tls spiffe://cellquota.test/cell/cell-1", "tls.ca CN=authority"}; !slices.Equal(keys, want) {
			t.Errorf("held %q, want %q", keys, want)
		}
	}
}
