package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"google.golang.org/grpc/credentials"
)

// ErrPlainStore refuses a connection to a store on another machine that would be in
// plain text.
var ErrPlainStore = errors.New("plain text does not leave this machine: name the authorities of the servers' certificates in tls.ca_file")

// Credentials are gRPC credentials of a client of somebody else's server, etcd's:
// the server must have a certificate for the host that is dialled, or for
// TLSFiles.ServerName.
func (t *TLS) Credentials() credentials.TransportCredentials { return reloading{t: t} }

// dialTime bounds a connection to a store, handshake included, where the caller's
// context does not.
const dialTime = 5 * time.Second

// Dialer opens a connection to a store (Redis, Kafka); the drivers of both take one.
type Dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// StoreDialer is how a store is reached: under the newest files of t, or without t in
// plain text on this machine only. It judges the address that is connected to, and so
// also those that a sentinel, a Redis Cluster or a broker answers with (ErrPlainStore).
func StoreDialer(t *TLS) Dialer {
	if t == nil {
		return dialPlain
	}
	return t.Dial
}

func dialPlain(ctx context.Context, network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	d := net.Dialer{ControlContext: func(_ context.Context, _, to string, _ syscall.RawConn) error {
		host, _, err := net.SplitHostPort(to)
		if err == nil && host == "" { // a Redis Cluster of one node says so of itself; net dials this machine
			return nil
		}
		if at, err := netip.ParseAddr(host); err != nil || !at.Unmap().IsLoopback() {
			return ErrPlainStore
		}
		return nil
	}}
	return d.DialContext(ctx, network, addr)
}

// Dial connects to a store under the newest files: its certificate must be for the
// host of addr, or for TLSFiles.ServerName.
func (t *TLS) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("dial %q: %w", addr, err)
	}
	config := t.ClientConfig()
	if config.ServerName == "" {
		config.ServerName = host
	}
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", addr, err)
	}
	return conn, nil
}

// ClientConfig is for one connection of a client: what the files hold now. Without
// TLSFiles.ServerName the caller, or its HTTP client, says whom it calls.
func (t *TLS) ClientConfig() *tls.Config {
	t.current()
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.config.Clone()
}

// HTTPS is for an HTTP server: it asks callers for no certificate, and shows the newest
// one of its own. HTTP/2 is spoken where the caller can. nil for no identity.
func (t *TLS) HTTPS() *tls.Config {
	if t == nil {
		return nil
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		t.current()
		t.mu.Lock()
		defer t.mu.Unlock()
		if len(t.config.Certificates) == 0 {
			return nil, fmt.Errorf("tls.cert_file: none")
		}
		return &t.config.Certificates[0], nil
	}}
}

// Held is one certificate of an identity.
type Held struct {
	Name string // its SPIFFE name, else its subject
	End  time.Time
}

// Leaf is the identity's certificate as the files are now; false without one.
func (t *TLS) Leaf() (Held, bool) {
	t.current()
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.config.Certificates) == 0 || t.config.Certificates[0].Leaf == nil {
		return Held{}, false
	}
	leaf := t.config.Certificates[0].Leaf
	if len(leaf.URIs) == 1 {
		return Held{leaf.URIs[0].String(), leaf.NotAfter}, true
	}
	return Held{leaf.Subject.String(), leaf.NotAfter}, true
}

// Authority is the one that ends first of those that sign the identity's peers; false
// where it has none.
func (t *TLS) Authority() (Held, bool) {
	t.current()
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.authority, t.authority != Held{}
}
