package controlplane

import (
	"fmt"

	"github.com/cellquota/cellquota/controlplane/convert"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/config"
	"github.com/cellquota/cellquota/internal/lifecycle"
	"github.com/cellquota/cellquota/internal/transport"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// etcdTLS loads this replica's identities, encrypts the way to etcd, and watches the
// ends of both certificates.
func (p *parts) etcdTLS(group *lifecycle.Group, at *store.Config) (err error) {
	if p.cfg.TLS.Enabled() {
		if p.tls, err = transport.LoadTLS(transport.TLSFiles{CertFile: p.cfg.TLS.CertFile, KeyFile: p.cfg.TLS.KeyFile, CAFile: p.cfg.TLS.CAFile}, p.log); err != nil {
			return fmt.Errorf("tls: %w", err)
		}
	}
	if p.cfg.Etcd.TLS.Enabled() {
		if p.etcd, err = storeTLS(p, p.cfg.Etcd.TLS); err != nil {
			return fmt.Errorf("etcd.tls: %w", err)
		}
		at.Credentials = p.etcd.Credentials()
	}
	if p.expiry, err = transport.NewExpiry(p.clock, p.log, p.registry); err != nil {
		return err
	}
	p.expiry.Add("tls", p.tls)
	p.expiry.Add("etcd.tls", p.etcd)
	group.Go("certificates", p.expiry.Run)
	return nil
}

func storeTLS(p *parts, files config.StoreTLS) (*transport.TLS, error) {
	return transport.LoadTLS(transport.TLSFiles{CertFile: files.CertFile, KeyFile: files.KeyFile, CAFile: files.CAFile, ServerName: files.ServerName}, p.log)
}

// certificates are those that this replica uses, for the status.
func (p *parts) certificates() (out []*pb.CertificateStatus) {
	for _, held := range p.expiry.All() {
		out = append(out, &pb.CertificateStatus{Key: held.Key, Name: held.Name, NotAfter: convert.Time(held.End)})
	}
	return out
}
