package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cellquota/cellquota/internal/transport"
)

var (
	// ErrAddress is a text that is no address of PostgreSQL.
	ErrAddress = errors.New("holds no address that can be read: must be one PostgreSQL address (postgres://… or key=value)")
	// ErrPlainText refuses an address without sslmode=verify-full.
	ErrPlainText = errors.New("must say sslmode=verify-full (and sslrootcert): less is for dev: true on loopback")
)

// Policy says what is refused beyond what always is.
type Policy struct {
	// Encrypted refuses plain text also on loopback: whatever runs without dev.
	Encrypted bool
}

// Parse reads an address. ErrAddress, ErrPlainText.
func Parse(dsn string, p Policy) (*pgx.ConnConfig, error) {
	cfg, err := pgx.ParseConfig(strings.TrimSpace(dsn))
	if err != nil {
		return nil, unreadable(err)
	}
	if err := p.judge(cfg.Config); err != nil {
		return nil, err
	}
	return cfg, nil
}

// ParsePool reads an address for a pool, whose connections use the certificate files as
// they are when each is made. ErrAddress, ErrPlainText.
func ParsePool(dsn string, p Policy) (*pgxpool.Config, error) {
	cfg, err := pgxpool.ParseConfig(strings.TrimSpace(dsn))
	if err != nil {
		return nil, unreadable(err)
	}
	if err := p.judge(cfg.ConnConfig.Config); err != nil {
		return nil, err
	}
	cfg.BeforeConnect = func(_ context.Context, next *pgx.ConnConfig) error {
		Renew(next)
		return nil
	}
	return cfg, nil
}

// Renew reads the certificate files of an address again, for the connection that cfg is
// about to make. Files that cannot be read leave what was read before.
func Renew(cfg *pgx.ConnConfig) {
	now, err := pgx.ParseConfig(cfg.ConnString())
	if err != nil || len(now.Fallbacks) != len(cfg.Fallbacks) {
		return
	}
	cfg.TLSConfig = now.TLSConfig
	for i, f := range now.Fallbacks {
		cfg.Fallbacks[i].TLSConfig = f.TLSConfig
	}
}

// Certificate is the one that is shown to the servers (sslcert), as its file is now;
// false: none is.
func Certificate(cfg *pgx.ConnConfig) (transport.Held, bool) {
	Renew(cfg)
	if cfg.TLSConfig == nil || len(cfg.TLSConfig.Certificates) == 0 || cfg.TLSConfig.Certificates[0].Leaf == nil {
		return transport.Held{}, false
	}
	leaf := cfg.TLSConfig.Certificates[0].Leaf
	return transport.Held{Name: leaf.Subject.String(), End: leaf.NotAfter}, true
}

// judge looks at every server, and every way to it, that the driver would try.
func (p Policy) judge(cfg pgconn.Config) error {
	ways := append([]*pgconn.FallbackConfig{{Host: cfg.Host, TLSConfig: cfg.TLSConfig}}, cfg.Fallbacks...)
	for _, w := range ways {
		verified := w.TLSConfig != nil && !w.TLSConfig.InsecureSkipVerify && w.TLSConfig.ServerName != ""
		if verified || strings.HasPrefix(w.Host, "/") || loopback(w.Host) && !p.Encrypted {
			continue
		}
		return ErrPlainText
	}
	return nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// unreadable keeps of the driver's error only which file it could not open: the rest may
// hold parts of the address.
func unreadable(err error) error {
	var file *fs.PathError
	if errors.As(err, &file) {
		return fmt.Errorf("%w: %w", ErrAddress, file)
	}
	return ErrAddress
}
