package transport_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/transport"
)

// authority signs certificates for one test.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	next int64
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, next: 1}
	template := a.template("authority")
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	a.key = a.newKey()
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *authority) newKey() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	return key
}

func (a *authority) template(name string) *x509.Certificate {
	a.next++
	return &x509.Certificate{
		SerialNumber: big.NewInt(a.next), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
}

// issue writes the files of an identity with the given SPIFFE names to dir.
func (a *authority) issue(dir string, names ...string) transport.TLSFiles {
	a.t.Helper()
	template := a.template("leaf")
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	for _, name := range names {
		u, err := url.Parse(name)
		if err != nil {
			a.t.Fatal(err)
		}
		template.URIs = append(template.URIs, u)
	}
	key := a.newKey()
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	files := transport.TLSFiles{
		CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem"), CAFile: filepath.Join(dir, "ca.pem"),
	}
	a.write(files.CertFile, "CERTIFICATE", der)
	a.write(files.KeyFile, "PRIVATE KEY", keyDER)
	a.write(files.CAFile, "CERTIFICATE", a.cert.Raw)
	return files
}

func (a *authority) write(path, kind string, der []byte) {
	a.t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

func (a *authority) load(names ...string) *transport.TLS {
	a.t.Helper()
	loaded, err := transport.LoadTLS(a.issue(a.t.TempDir(), names...), slog.New(slog.DiscardHandler))
	if err != nil {
		a.t.Fatal(err)
	}
	return loaded
}

// secured serves with an identity and returns its address and the last caller's name.
func secured(t *testing.T, identity *transport.TLS) (addr string, seen *string) {
	t.Helper()
	seen = new(string)
	o := transport.ServerOptions{TLS: identity, Authenticator: transport.FirstOf(
		transport.Certificates("cellquota.test"), operators())}
	l, err := transport.Listen("127.0.0.1:0", o)
	if err != nil {
		t.Fatal(err)
	}
	run(t, l, service{unary: func(ctx context.Context, _ *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
		p, _ := transport.PrincipalFrom(ctx)
		*seen = p.Name + " as " + p.Role
		return &testgrpc.SimpleResponse{}, nil
	}}, o)
	return l.Addr().String(), seen
}

func TestMutualTLSNamesTheWorkload(t *testing.T) {
	ca := newAuthority(t)
	addr, seen := secured(t, ca.load("spiffe://cellquota.test/controlplane/cp-1"))
	cases := map[string]struct {
		identity *transport.TLS
		token    string
		want     error
		seen     string
	}{
		"cell":               {ca.load("spiffe://cellquota.test/cell/cell-1"), "", nil, "cell/cell-1 as cell"},
		"other domain":       {ca.load("spiffe://elsewhere/cell/cell-1"), "", rpcstatus.ErrUnauthenticated, ""},
		"two names":          {ca.load("spiffe://cellquota.test/cell/a", "spiffe://cellquota.test/cell/b"), "", rpcstatus.ErrUnauthenticated, ""},
		"path too long":      {ca.load("spiffe://cellquota.test/cell/a/b"), "", rpcstatus.ErrUnauthenticated, ""},
		"no name":            {ca.load(), "", rpcstatus.ErrUnauthenticated, ""},
		"token, no name":     {ca.load(), alice, nil, "alice as sre"},
		"stranger's cert":    {newAuthority(t).load("spiffe://cellquota.test/cell/cell-1"), "", rpcstatus.ErrUnavailable, ""},
		"development's name": {nil, "", rpcstatus.ErrUnavailable, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			*seen = ""
			o := transport.DialOptions{TLS: c.identity, Workload: "cell/cell-1", DefaultTimeout: 10 * time.Second, Dev: c.identity == nil}
			if c.token != "" {
				o.Token = func(context.Context) (string, error) { return c.token, nil }
			}
			if err := ask(t, dial(t, addr, o)); !errors.Is(err, c.want) || *seen != c.seen {
				t.Fatalf("got %v, seen %q", err, *seen)
			}
		})
	}
}

func TestCertificatesAreReadAgain(t *testing.T) {
	ca, dir := newAuthority(t), t.TempDir()
	addr, seen := secured(t, ca.load())
	log := new(syncBuffer)
	identity, err := transport.LoadTLS(ca.issue(dir, "spiffe://cellquota.test/edge/old"), log.logger())
	if err != nil {
		t.Fatal(err)
	}
	call := func(want string) {
		t.Helper()
		if err := ask(t, dial(t, addr, transport.DialOptions{TLS: identity, DefaultTimeout: 10 * time.Second})); err != nil || *seen != want {
			t.Fatalf("got %v, seen %q, want %q", err, *seen, want)
		}
	}
	call("edge/old as edge")
	files := ca.issue(dir, "spiffe://cellquota.test/edge/newer")
	call("edge/newer as edge")
	if err := os.WriteFile(files.CertFile, []byte("half a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	call("edge/newer as edge")
	if !strings.Contains(log.String(), "tls_reload_failed") || !strings.Contains(log.String(), "tls_reloaded") {
		t.Errorf("log %s", log)
	}
}

func TestLoadTLSNamesTheFile(t *testing.T) {
	ca := newAuthority(t)
	for want, spoil := range map[string]func(*transport.TLSFiles){
		"no such file": func(f *transport.TLSFiles) { f.CertFile += "x" },
		"tls.key_file": func(f *transport.TLSFiles) { f.KeyFile = f.CAFile },
		"tls.ca_file":  func(f *transport.TLSFiles) { f.CAFile = f.KeyFile },
	} {
		files := ca.issue(t.TempDir())
		spoil(&files)
		if _, err := transport.LoadTLS(files, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
