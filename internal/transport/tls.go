package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
)

// TLSFiles name the PEM files of an identity. Between processes of ours all three
// are needed. A client of a store may have authorities alone; a server that asks
// callers for no certificate has none.
type TLSFiles struct {
	CertFile string // chain of this process
	KeyFile  string // its private key
	CAFile   string // authorities that sign its peers
	// ServerName is the name that the certificate of a store must have; "": the host
	// that is dialled. Between processes of ours it stays empty: Peer says who they are.
	ServerName string
}

// TLS is an identity that is read again whenever one of its files changes, so
// that certificates are replaced without a restart. Connections that are open
// keep the old one. Safe for concurrent use.
type TLS struct {
	files TLSFiles
	log   *slog.Logger

	mu        sync.Mutex
	stamp     [3]fileStamp
	server    credentials.TransportCredentials
	client    credentials.TransportCredentials
	config    *tls.Config // of clients
	authority Held        // the first to end
}

// maxPEM bounds a file of certificates: paths come from operators' files too.
const maxPEM = 1 << 20

type fileStamp struct {
	modified time.Time
	size     int64
}

// LoadTLS reads an identity; a file that is missing or does not parse is an
// error here, and later only a log line, with the old identity kept.
func LoadTLS(files TLSFiles, log *slog.Logger) (*TLS, error) {
	t := &TLS{files: files, log: log}
	stamp, err := t.look()
	if err != nil {
		return nil, err
	}
	if err := t.read(stamp); err != nil {
		return nil, err
	}
	return t, nil
}

func (t *TLS) paths() [3]string {
	return [3]string{t.files.CertFile, t.files.KeyFile, t.files.CAFile}
}

func (t *TLS) look() (stamp [3]fileStamp, err error) {
	for i, path := range t.paths() {
		if path == "" {
			continue
		}
		info, err := os.Stat(path)
		switch {
		case err != nil:
			return stamp, fmt.Errorf("tls: %w", err)
		case !info.Mode().IsRegular() || info.Size() > maxPEM:
			return stamp, fmt.Errorf("tls: %s: must be a regular file of at most %d bytes", path, maxPEM)
		}
		stamp[i] = fileStamp{info.ModTime(), info.Size()}
	}
	return stamp, nil
}

// read loads the files and remembers the stamp they had before.
func (t *TLS) read(stamp [3]fileStamp) error {
	var pairs []tls.Certificate
	if t.files.CertFile != "" || t.files.KeyFile != "" {
		pair, err := tls.LoadX509KeyPair(t.files.CertFile, t.files.KeyFile)
		if err != nil {
			return fmt.Errorf("tls.cert_file, tls.key_file: %w", err)
		}
		pairs = append(pairs, pair)
	}
	pool, first, err := authorities(t.files.CAFile)
	if err != nil {
		return err
	}
	t.stamp, t.authority = stamp, first
	t.server = credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: pairs,
		// Operators may show a bearer token instead of a certificate; who may
		// do without one is the Authenticator's decision.
		ClientCAs: pool, ClientAuth: tls.VerifyClientCertIfGiven,
	})
	t.config = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: pairs, RootCAs: pool, ServerName: t.files.ServerName} // stores may be older than TLS 1.3
	ours := t.config.Clone()
	ours.MinVersion = tls.VersionTLS13
	t.client = credentials.NewTLS(ours)
	return nil
}

// authorities reads a file of certificates, and which of them ends first; none for no
// file, which trusts nobody.
func authorities(file string) (pool *x509.CertPool, first Held, err error) {
	pool = x509.NewCertPool()
	if file == "" {
		return pool, Held{}, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, Held{}, fmt.Errorf("tls.ca_file: %w", err)
	}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		cert, err := x509.ParseCertificate(block.Bytes)
		if block.Type != "CERTIFICATE" || err != nil {
			continue // a key or a comment in between is not an authority
		}
		pool.AddCert(cert)
		if first.End.IsZero() || cert.NotAfter.Before(first.End) {
			first = Held{cert.Subject.String(), cert.NotAfter}
		}
	}
	if first.End.IsZero() {
		return nil, Held{}, errors.New("tls.ca_file: holds no certificate")
	}
	return pool, first, nil
}

// current returns the credentials of the newest readable files.
func (t *TLS) current() (server, client credentials.TransportCredentials) {
	t.mu.Lock()
	defer t.mu.Unlock()
	stamp, err := t.look()
	if err == nil && stamp != t.stamp {
		if err = t.read(stamp); err == nil {
			t.log.Info("certificates read again", "event", "tls_reloaded")
		}
	}
	if err != nil {
		t.log.Error("certificates not read again; the old ones stay", "event", "tls_reload_failed", "error", err)
	}
	return t.server, t.client
}

// reloading are gRPC credentials that ask for the current identity at each handshake.
type reloading struct {
	t    *TLS
	peer Peer
}

func (r reloading) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	server, _ := r.t.current()
	return server.ServerHandshake(conn)
}

func (r reloading) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	_, client := r.t.current()
	secured, info, err := client.ClientHandshake(ctx, authority, conn)
	if err != nil {
		return nil, nil, err
	}
	if err := r.peer.check(info); err != nil {
		return nil, nil, errors.Join(err, secured.Close())
	}
	return secured, info, nil
}

func (r reloading) Info() credentials.ProtocolInfo {
	_, client := r.t.current()
	return client.Info()
}

func (r reloading) Clone() credentials.TransportCredentials { return r }

// OverrideServerName is grpc's deprecated hook; the name is the dialled host.
func (r reloading) OverrideServerName(string) error {
	return errors.New("transport: the server name is that of the address")
}

// secure picks the credentials of a server or a client.
func secure(t *TLS, dev bool, peer Peer) credentials.TransportCredentials {
	if t == nil {
		return newPlaintext(dev)
	}
	return reloading{t, peer}
}
