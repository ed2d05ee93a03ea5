package store_test

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/testkit"
	ours "github.com/cellquota/cellquota/internal/transport"
)

// etcd that asks its clients for certificates is reached with one; a stranger's, and
// plain text, are not let in.
func TestEtcdOverTLS(t *testing.T) {
	ca := testkit.NewAuthority(t)
	server := ca.Issue(t.TempDir())
	etcd := testkit.EtcdWith(t, 1, func(c *embed.Config) {
		c.ClientTLSInfo = transport.TLSInfo{CertFile: server.Cert, KeyFile: server.Key, TrustedCAFile: server.CA, ClientCertAuth: true}
		for _, urls := range []*[]url.URL{&c.ListenClientUrls, &c.AdvertiseClientUrls} {
			secured := (*urls)[0]
			secured.Scheme = "https"
			*urls = []url.URL{secured}
		}
	})
	dir := t.TempDir()
	open := func(files testkit.PEMFiles) *store.Store {
		t.Helper()
		cfg := store.Config{Endpoints: etcd.Endpoints(), Prefix: "/cellquota", Timeout: 3 * time.Second}
		if files.CA != "" {
			identity, err := ours.LoadTLS(ours.TLSFiles{CertFile: files.Cert, KeyFile: files.Key, CAFile: files.CA}, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			cfg.Credentials = identity.Credentials()
		}
		s, err := store.Open(cfg, store.Deps{Clock: clock.System()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	good := open(ca.Issue(dir))
	if err := good.Ping(testkit.Deadline(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := good.Update(testkit.Deadline(t), "put key", func(tx *store.Tx) error {
		return tx.PutKey(core.Key{Use: "permit", KID: "k1", State: core.KeyPending})
	}); err != nil {
		t.Fatal(err)
	}
	onlyCA := ca.Issue(t.TempDir())
	onlyCA.Cert, onlyCA.Key = "", ""
	for name, files := range map[string]testkit.PEMFiles{
		"plain text": {}, "no certificate": onlyCA, "a stranger's": testkit.NewAuthority(t).Issue(t.TempDir()),
		"an ended one": ca.IssueUntil(t.TempDir(), time.Now().Add(-time.Minute)),
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if err := open(files).Ping(ctx); !errors.Is(err, core.ErrStoreUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
}
