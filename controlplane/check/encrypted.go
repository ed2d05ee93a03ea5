package check

import (
	"context"
	"log/slog"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/topics"
	"github.com/cellquota/cellquota/internal/secretfile"
	"github.com/cellquota/cellquota/internal/transport"
)

// dialer is how a store is reached. Where the rule of plain text is broken, or a
// certificate file cannot be used, the finding names the key and nothing is dialled: a
// password would go out before anybody read the finding.
func (c Checker) dialer(ctx context.Context, at string, files core.StoreTLS, addrs []string, p *part) (transport.Dialer, bool) {
	if !c.files(ctx, at, files, addrs, p) {
		return nil, false
	}
	if !files.Enabled() {
		return transport.StoreDialer(nil), true
	}
	identity, err := transport.LoadTLS(transport.TLSFiles{CAFile: files.CAFile, CertFile: files.CertFile, KeyFile: files.KeyFile, ServerName: files.ServerName}, slog.New(slog.DiscardHandler))
	if err != nil {
		p.saw(at, err.Error(), false, "must name PEM files: authorities, and where it is given a certificate with its key")
		return nil, false
	}
	return transport.StoreDialer(identity), true
}

// access is how the brokers are reached, and as whom.
func (c Checker) access(ctx context.Context, spec core.KafkaSpec, p *part) ([]kgo.Opt, bool) {
	if !c.files(ctx, "kafka.tls", spec.TLS, spec.Brokers, p) {
		return nil, false
	}
	if spec.SASL.PasswordFile != "" {
		if _, err := secretfile.Read(ctx, spec.SASL.PasswordFile); err != nil {
			p.saw("kafka.sasl.password_file", secretfile.Class(err), false, secretfile.Rule)
			return nil, false
		}
	}
	access, err := topics.Access(spec, nil)
	if err != nil {
		p.saw("kafka.tls", err.Error(), false, "must name PEM files: authorities, and where it is given a certificate with its key")
		return nil, false
	}
	return access, true
}

// files looks at what a block tls says and names; false: something there is wrong.
func (c Checker) files(ctx context.Context, at string, files core.StoreTLS, addrs []string, p *part) bool {
	found := len(p.found)
	for _, v := range core.Encrypted(at, files, !c.encrypted, addrs) {
		p.saw(v.Field, "plain text", false, v.Rule)
	}
	for _, f := range []struct{ key, path string }{{"ca_file", files.CAFile}, {"cert_file", files.CertFile}, {"key_file", files.KeyFile}} {
		if f.path == "" {
			continue
		}
		if _, err := secretfile.Read(ctx, f.path); err != nil {
			p.saw(at+"."+f.key, secretfile.Class(err), false, secretfile.Rule)
		}
	}
	return len(p.found) == found
}
