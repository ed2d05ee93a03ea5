package transport

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc/credentials"
)

// Credentials are gRPC credentials of a client of somebody else's server, etcd's:
// the server must have a certificate for the host that is dialled.
func (t *TLS) Credentials() credentials.TransportCredentials { return reloading{t: t} }

// dialTime bounds a connection to a store, handshake included, where the caller's
// context does not.
const dialTime = 5 * time.Second

// Dial connects to a store (Redis, Kafka) under the newest files: its certificate
// must be for the host of addr.
func (t *TLS) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("dial %q: %w", addr, err)
	}
	t.current()
	t.mu.Lock()
	config := t.config.Clone()
	t.mu.Unlock()
	config.ServerName = host
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", addr, err)
	}
	return conn, nil
}

// ServerConfig is for an HTTP server: it asks callers for no certificate, and shows
// the newest one of its own.
func (t *TLS) ServerConfig() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		t.current()
		t.mu.Lock()
		defer t.mu.Unlock()
		if len(t.config.Certificates) == 0 {
			return nil, fmt.Errorf("tls.cert_file: none")
		}
		return &t.config.Certificates[0], nil
	}}
}

// Leaf is the name (its SPIFFE name, else its subject) and the end of the identity's
// certificate, as the files are now; false without one.
func (t *TLS) Leaf() (name string, end time.Time, ok bool) {
	t.current()
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.config.Certificates) == 0 || t.config.Certificates[0].Leaf == nil {
		return "", time.Time{}, false
	}
	leaf := t.config.Certificates[0].Leaf
	if len(leaf.URIs) == 1 {
		return leaf.URIs[0].String(), leaf.NotAfter, true
	}
	return leaf.Subject.String(), leaf.NotAfter, true
}
