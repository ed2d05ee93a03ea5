package transport

import (
	"context"
	"errors"
	"fmt"
	"net"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// ErrPlainText refuses an address or a connection that would go without TLS
// where it must not.
var ErrPlainText = errors.New("plain text is refused unless dev and on loopback; give tls.cert_file, tls.key_file and tls.ca_file")

// plaintext are credentials that look at each connection: without Dev all are
// refused, with it those that leave this machine.
type plaintext struct {
	credentials.TransportCredentials
	dev bool
}

func newPlaintext(dev bool) credentials.TransportCredentials {
	return plaintext{insecure.NewCredentials(), dev}
}

func (p plaintext) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if err := p.allow(conn.LocalAddr()); err != nil {
		return nil, nil, err
	}
	return p.TransportCredentials.ServerHandshake(conn)
}

func (p plaintext) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if err := p.allow(conn.RemoteAddr()); err != nil {
		return nil, nil, err
	}
	return p.TransportCredentials.ClientHandshake(ctx, authority, conn)
}

func (p plaintext) Clone() credentials.TransportCredentials {
	return plaintext{p.TransportCredentials.Clone(), p.dev}
}

func (p plaintext) allow(a net.Addr) error {
	if p.dev && local(a) {
		return nil
	}
	return fmt.Errorf("%w (%v)", ErrPlainText, a)
}

// Local reports whether an address cannot be reached from another machine.
func Local(a net.Addr) bool { return local(a) }

// local reports whether an address cannot be reached from another machine.
func local(a net.Addr) bool {
	switch addr := a.(type) {
	case *net.TCPAddr:
		return addr.IP.IsLoopback()
	case *net.UnixAddr:
		return true
	default:
		return a != nil && a.Network() == "bufconn"
	}
}
