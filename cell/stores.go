package cell

import (
	"fmt"

	"github.com/cellquota/cellquota/internal/config"
	"github.com/cellquota/cellquota/internal/kafka"
	"github.com/cellquota/cellquota/internal/transport"
)

// storeIdentities reads by which certificates Redis and the brokers are known, and as
// whom this process logs in there. All of its clients of the brokers use the same.
func (p *parts) storeIdentities() (err error) {
	if p.redisTLS, err = p.storeTLS("redis.tls", p.cfg.Redis.TLS); err != nil {
		return err
	}
	brokers, err := p.storeTLS("kafka.tls", p.cfg.Kafka.TLS)
	if err != nil {
		return err
	}
	login := p.cfg.Kafka.SASL
	p.kafka, err = kafka.Access{TLS: brokers, Mechanism: login.Mechanism, User: login.User, PasswordFile: login.PasswordFile}.Options()
	if err != nil {
		return fmt.Errorf("kafka.%w", err)
	}
	return nil
}

// storeTLS reads the identity of a configuration key and watches its ends; nil for
// plain text, which does not leave this machine.
func (p *parts) storeTLS(key string, files config.StoreTLS) (*transport.TLS, error) {
	if !files.Enabled() {
		return nil, nil //nolint:nilnil // plain text is no fault: config refused it where it is
	}
	t, err := transport.LoadTLS(transport.TLSFiles{CertFile: files.CertFile, KeyFile: files.KeyFile, CAFile: files.CAFile, ServerName: files.ServerName}, p.log)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	p.expiry.Add(key, t)
	return t, nil
}
