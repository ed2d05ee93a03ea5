package admission

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/testkit"
	"github.com/cellquota/cellquota/internal/transport"
)

// A mirror on a Redis that speaks TLS alone: whoever knows its authorities, and shows a
// certificate where the server asks for one, admits; nobody else gets a word. Files that
// are replaced on disk count from the next connection on.
func TestMirrorOverTLS(t *testing.T) {
	ca, dir := testkit.NewAuthority(t), t.TempDir()
	server := testkit.RedisTLS(t, ca.Issue(t.TempDir()), "--tls-auth-clients", "yes")
	mine := ca.Issue(dir)
	load := func(f transport.TLSFiles) transport.Dialer {
		t.Helper()
		identity, err := transport.LoadTLS(f, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return transport.StoreDialer(identity)
	}
	opened := func(dial transport.Dialer) *Client {
		t.Helper()
		c, err := Open(Config{Cell: "cell-1", Addrs: []string{server.Addr()}, Timeout: time.Second, Dial: dial},
			Deps{Clock: clock.System(), Logger: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	known := transport.TLSFiles{CertFile: mine.Cert, KeyFile: mine.Key, CAFile: mine.CA}
	stranger := testkit.NewAuthority(t).Issue(t.TempDir())
	for name, row := range map[string]struct {
		dial transport.Dialer
		ok   bool
	}{
		"known":                  {load(known), true},
		"by another name":        {load(transport.TLSFiles{CertFile: mine.Cert, KeyFile: mine.Key, CAFile: mine.CA, ServerName: "redis.example"}), false},
		"without a certificate":  {load(transport.TLSFiles{CAFile: mine.CA}), false},
		"a stranger's":           {load(transport.TLSFiles{CertFile: stranger.Cert, KeyFile: stranger.Key, CAFile: mine.CA}), false},
		"servers of a stranger":  {load(transport.TLSFiles{CertFile: mine.Cert, KeyFile: mine.Key, CAFile: stranger.CA}), false},
		"plain text on loopback": {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			if err := opened(row.dial).Check(testkit.Deadline(t)); row.ok != (err == nil) {
				t.Errorf("got %v", err)
			}
		})
	}
	c := opened(load(known))
	if err := c.Check(testkit.Deadline(t)); err != nil {
		t.Fatal(err)
	}
	testkit.NewAuthority(t).Issue(dir) // others sign from now on, and Redis has not been told
	server.Restart(t)
	if err := c.Check(testkit.Deadline(t)); err == nil {
		t.Error("the files that were replaced are not used")
	}
	ca.Issue(dir)
	testkit.Eventually(t, 10*time.Second, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		return c.Check(ctx)
	})
}
