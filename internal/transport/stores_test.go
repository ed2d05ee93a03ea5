package transport_test

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"os"
	"testing"

	"github.com/cellquota/cellquota/internal/testkit"
	"github.com/cellquota/cellquota/internal/transport"
)

// store is a server that shows the files as they are at each handshake.
func store(t *testing.T, files testkit.PEMFiles) (addr string) {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
		return &pair, err
	}})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = conn.(*tls.Conn).Handshake()
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return l.Addr().String()
}

func reach(t *testing.T, identity *transport.TLS, addr string) error {
	t.Helper()
	conn, err := transport.StoreDialer(identity)(t.Context(), "tcp", addr)
	if err != nil {
		return err
	}
	return conn.Close()
}

// Plain text does not leave this machine, whatever name leads away from it; nothing is
// sent before that is known.
func TestPlainStoresAreLocal(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if err := reach(t, nil, l.Addr().String()); err != nil {
		t.Errorf("loopback: %v", err)
	}
	for _, addr := range []string{"192.0.2.1:6379", "[2001:db8::1]:9092", "0.0.0.0:6379"} {
		if err := reach(t, nil, addr); !errors.Is(err, transport.ErrPlainStore) {
			t.Errorf("%s: %v", addr, err)
		}
	}
}

// A store is known by its authorities and by its name: the dialled host, or the one that
// is configured. Both are read again when their files change, so that authorities and
// certificates are replaced without a restart.
func TestStoresAreKnownByTheirCertificates(t *testing.T) {
	ca, dir := testkit.NewAuthority(t), t.TempDir()
	server := ca.Issue(dir)
	addr := store(t, server)
	load := func(f transport.TLSFiles) *transport.TLS {
		t.Helper()
		identity, err := transport.LoadTLS(f, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return identity
	}
	trusts := t.TempDir() + "/ca.pem"
	copyFile(t, server.CA, trusts)
	mine := load(transport.TLSFiles{CAFile: trusts})
	if err := reach(t, mine, addr); err != nil {
		t.Errorf("its own authorities: %v", err)
	}
	if err := reach(t, load(transport.TLSFiles{CAFile: trusts, ServerName: "redis.example"}), addr); err == nil {
		t.Error("a server of another name was taken for redis.example")
	}
	if err := reach(t, load(transport.TLSFiles{CAFile: trusts, ServerName: "localhost"}), addr); err != nil {
		t.Errorf("by its configured name: %v", err)
	}
	renewed := testkit.NewAuthority(t).Issue(dir) // another authority signs from now on
	if err := reach(t, mine, addr); err == nil {
		t.Error("a server of authorities that are not trusted was believed")
	}
	copyFile(t, renewed.CA, trusts)
	if err := reach(t, mine, addr); err != nil {
		t.Errorf("after the authorities were replaced on disk: %v", err)
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A file that is a device or endless is none of certificates.
func TestCertificateFilesAreSmallAndRegular(t *testing.T) {
	for _, path := range []string{"/dev/zero", t.TempDir()} {
		if _, err := transport.LoadTLS(transport.TLSFiles{CAFile: path}, slog.New(slog.DiscardHandler)); err == nil {
			t.Errorf("%s was read", path)
		}
	}
}

var _ transport.Dialer = (&net.Dialer{}).DialContext // what drivers take
