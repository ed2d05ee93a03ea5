package target

import (
	"crypto/tls"
	"fmt"
	"log/slog"

	"github.com/cellquota/cellquota/controlplane/client"
	"github.com/cellquota/cellquota/internal/transport"
)

// Trusts is by which authorities edges are known; nil: by the machine's own.
func (t Target) Trusts() (*tls.Config, error) {
	if t.Local == nil || t.tls == nil { // customers' edges have certificates for everybody
		return nil, nil //nolint:nilnil // said above
	}
	identity, err := transport.LoadTLS(*t.tls, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrConfig, t.Name, err)
	}
	return identity.ClientConfig(), nil
}

// Dial connects as a role. Nothing is sent before the first call, and a control plane that is not
// there is an error at once: a person waits for the command.
func (t Target) Dial(r Role) (*client.Client, error) {
	token, err := t.token(r)
	if err != nil {
		return nil, err
	}
	o := client.Options{Addrs: t.ControlPlanes, Dev: t.tls == nil, Token: token, Dial: func(d *transport.DialOptions) { d.WaitForReady = false }}
	if t.tls != nil {
		o.Dial = func(d *transport.DialOptions) {
			d.WaitForReady = false
			// A cell or an edge has a certificate of the same authorities, and would get the token.
			d.Peer = transport.Peer{Domain: t.trustDomain, Workload: "controlplane/"}
		}
		if o.TLS, err = transport.LoadTLS(*t.tls, slog.New(slog.DiscardHandler)); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrConfig, t.Name, err)
		}
	}
	c, err := client.Dial(o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.Name, err)
	}
	return c, nil
}
