package layout

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"time"

	"github.com/cellquota/cellquota/deploy/local/platform"
)

// certificateLife is how long what a start makes is good for. Each start makes all anew,
// authority included: nobody outside the platform trusts it.
const certificateLife = 90 * 24 * time.Hour

// trustDomain is the default of the servers' trust_domain.
const trustDomain = "cellquota"

// Identity are the files of one process's certificate below the data directory.
type Identity struct{ Cert, Key string }

// Identity is that of a process: etcd-1, cell-1/redis, edge-1, or Operator.
func (p Plan) Identity(process string) Identity {
	return Identity{p.path("tls", process, "cert.pem"), p.path("tls", process, "key.pem")}
}

// Operator is the identity of whoever looks at the stores of the platform: the
// supervisor's probes, and tests.
const Operator = "operator"

// CAFile are the authorities of every certificate of the platform.
func (p Plan) CAFile() string { return p.path("tls", "ca.pem") }

// workloads lists who gets a certificate, each with its SPIFFE name; "" for a store,
// which is known by its address.
func (p Plan) workloads() map[string]string {
	all := map[string]string{p.Kafka.Name: "", Operator: ""}
	for _, m := range p.Etcd.Members {
		all[m.Name] = ""
	}
	for _, s := range p.ControlPlanes {
		all[s.Name] = "/controlplane/" + s.Name
	}
	for _, s := range p.Edges {
		all[s.Name] = "/edge/" + s.Name
	}
	for _, c := range p.Cells {
		all[c.Redis.Name], all[c.Postgres.Name] = "", ""
		for _, s := range c.Processes {
			all[s.Name] = "/cell/" + c.ID
		}
	}
	return all
}

// MakeCertificates makes an authority and a certificate for every process, good for
// 127.0.0.1 and localhost. Without --tls it does nothing.
func (p Plan) MakeCertificates(now time.Time) error {
	if !p.Options.TLS {
		return nil
	}
	template, err := certificate("the local platform's authority", now)
	if err != nil {
		return err
	}
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("certificates: %w", err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return fmt.Errorf("certificates: %w", err)
	}
	if err := writePEM(p.CAFile(), "CERTIFICATE", der); err != nil {
		return err
	}
	if err := writeKey(p.path("tls", "ca.key"), key); err != nil { // whoever tries a rotation signs with it
		return err
	}
	for process, name := range p.workloads() {
		if err := p.issue(process, name, template, key, now); err != nil {
			return err
		}
	}
	return nil
}

func (p Plan) issue(process, name string, authority *x509.Certificate, signs *ecdsa.PrivateKey, now time.Time) error {
	template, err := certificate(process, now)
	if err != nil {
		return err
	}
	template.IPAddresses, template.DNSNames = []net.IP{net.IPv4(127, 0, 0, 1)}, []string{"localhost"}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	if name != "" {
		template.URIs = []*url.URL{{Scheme: "spiffe", Host: trustDomain, Path: name}}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("certificate of %s: %w", process, err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, authority, &key.PublicKey, signs)
	if err != nil {
		return fmt.Errorf("certificate of %s: %w", process, err)
	}
	files := p.Identity(process)
	return errors.Join(writePEM(files.Cert, "CERTIFICATE", der), writeKey(files.Key, key))
}

func certificate(name string, now time.Time) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("certificate of %s: %w", name, err)
	}
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(certificateLife),
	}, nil
}

func writeKey(file string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return writePEM(file, "PRIVATE KEY", der)
}

func writePEM(file, kind string, der []byte) error {
	return writeSecret(file, string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})))
}

// ClientTLS is how the supervisor calls a server of the platform; nil without --tls.
func (p Plan) ClientTLS() (*tls.Config, error) {
	if !p.Options.TLS {
		return nil, nil //nolint:nilnil // plain text is what was asked for
	}
	text, err := os.ReadFile(p.CAFile())
	if err != nil {
		return nil, fmt.Errorf("certificates: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("certificates: %s holds none", p.CAFile())
	}
	files := p.Identity(Operator)
	pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		return nil, fmt.Errorf("certificates: %w", err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, Certificates: []tls.Certificate{pair}, ServerName: "localhost"}, nil
}

// endpointsTLS is what others need to reach the platform.
func (p Plan) endpointsTLS() *platform.TLS {
	if !p.Options.TLS {
		return nil
	}
	mine := p.Identity(Operator)
	return &platform.TLS{CAFile: p.CAFile(), CertFile: mine.Cert, KeyFile: mine.Key}
}

// url is http:// or, with --tls, https://.
func (p Plan) url(addr string) string {
	if p.Options.TLS {
		return "https://" + addr
	}
	return "http://" + addr
}

// secure adds the certificates of a cellquotad process to its configuration.
func (p Plan) secure(d document, s Server) {
	if !p.Options.TLS {
		return
	}
	mine := p.Identity(s.Name)
	d.put("dev", false)
	d.put("metrics_tls", true)
	d.put("tls.cert_file", mine.Cert)
	d.put("tls.key_file", mine.Key)
	d.put("tls.ca_file", p.CAFile())
}

// storeTLS are the keys of a client of a store, which shows a process's certificate.
func (p Plan) storeTLS(process string) document {
	mine := p.Identity(process)
	return document{"ca_file": p.CAFile(), "cert_file": mine.Cert, "key_file": mine.Key}
}

// PostgresCert and its neighbours are where a shard's server has its certificate, which only its account may
// read: relative to its data directory, so that it is found by whatever path the account
// reaches that.
const (
	PostgresCert = "server.crt"
	PostgresKey  = "server.key"
	PostgresHBA  = "pg_hba_tls.conf"
)

// PostgresHBAText lets in whoever speaks TLS and knows the password.
const PostgresHBAText = "hostssl all all 127.0.0.1/32 scram-sha-256\n"
