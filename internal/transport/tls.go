package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
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
}

// TLS is an identity that is read again whenever one of its files changes, so
// that certificates are replaced without a restart. Connections that are open
// keep the old one. Safe for concurrent use.
type TLS struct {
	files TLSFiles
	log   *slog.Logger

	mu     sync.Mutex
	stamp  [3]fileStamp
	server credentials.TransportCredentials
	client credentials.TransportCredentials
	config *tls.Config // of clients
}

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
		if err != nil {
			return stamp, fmt.Errorf("tls: %w", err)
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
	pool, err := authorities(t.files.CAFile)
	if err != nil {
		return err
	}
	t.stamp = stamp
	t.server = credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: pairs,
		// Operators may show a bearer token instead of a certificate; who may
		// do without one is the Authenticator's decision.
		ClientCAs: pool, ClientAuth: tls.VerifyClientCertIfGiven,
	})
	t.config = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: pairs, RootCAs: pool} // stores may be older than TLS 1.3
	ours := t.config.Clone()
	ours.MinVersion = tls.VersionTLS13
	t.client = credentials.NewTLS(ours)
	return nil
}

// authorities reads a file of certificates; none for no file, which trusts nobody.
func authorities(file string) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	if file == "" {
		return pool, nil
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("tls.ca_file: %w", err)
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, errors.New("tls.ca_file: holds no certificate")
	}
	return pool, nil
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
