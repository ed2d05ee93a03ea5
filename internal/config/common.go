package config

import (
	"net"
	"strings"
	"time"
)

// Common are the keys every server process has. Embed it.
type Common struct {
	Dev              bool          `config:"dev" default:"false" doc:"local development: plain text on loopback, reflection, clock offsets"`
	LogLevel         string        `config:"log_level" default:"info" oneof:"debug,info,warn,error" doc:"lowest level that is logged; can be changed on the metrics port"`
	MetricsAddr      string        `config:"metrics_addr" default:"127.0.0.1:9464" min:"1" doc:"where metrics, health, readiness, profiles and the log level are served"`
	MetricsTokenFile string        `config:"metrics_token_file" default:"" doc:"file with the bearer token of the metrics port; needed unless metrics_addr is on loopback"`
	ShutdownGrace    time.Duration `config:"shutdown_grace" default:"10s" min:"100ms" max:"10m" doc:"how long SIGTERM may take to drain"`
	Trace            Trace         `config:"trace"`
	TLS              TLS           `config:"tls"`
}

// Trace says where spans go.
type Trace struct {
	Endpoint string  `config:"endpoint" default:"" doc:"OTLP gRPC collector, host:port or https://host:port; empty: spans are not exported"`
	Sample   float64 `config:"sample" default:"0.01" min:"0" max:"1" doc:"share of new traces that are exported"`
}

// TLS names the files of a process's identity. All or none.
type TLS struct {
	CertFile string `config:"cert_file" default:"" doc:"certificate chain of this process, PEM"`
	KeyFile  string `config:"key_file" default:"" doc:"private key of this process, PEM"`
	CAFile   string `config:"ca_file" default:"" doc:"authorities that sign peers, PEM"`
}

// StoreTLS names the files of a client of a store. With ca_file the connection is encrypted; the other two
// are given together where the store asks its clients for certificates.
type StoreTLS struct {
	CAFile   string `config:"ca_file" default:"" doc:"authorities that sign the servers' certificates, PEM; empty: plain text, which is refused unless dev or on loopback"`
	CertFile string `config:"cert_file" default:"" doc:"certificate chain that is shown to the servers, PEM"`
	KeyFile  string `config:"key_file" default:"" doc:"private key of that certificate, PEM"`
}

// Enabled reports whether the connection is encrypted.
func (t StoreTLS) Enabled() bool { return t.CAFile != "" }

// Check: plain text stays on this machine, and a certificate has its key. at is the name of the keys,
// "etcd.tls"; addrs are the servers.
func (t StoreTLS) Check(problem func(key, rule string), at string, dev bool, addrs []string) {
	if (t.CertFile == "") != (t.KeyFile == "") {
		problem(at+".cert_file", "must be given together with key_file")
	}
	if t.CAFile == "" && t.CertFile != "" {
		problem(at+".ca_file", "must be given together with cert_file")
	}
	if t.CAFile != "" || dev {
		return
	}
	for _, addr := range addrs {
		if !loopback(addr) {
			problem(at+".ca_file", "is required unless dev: true or every server is on loopback; "+addr+" is not")
			return
		}
	}
}

// loopback tells whether an address host:port, perhaps with a scheme, is surely on this machine.
func loopback(addr string) bool {
	if _, rest, found := strings.Cut(addr, "://"); found {
		addr = rest
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Enabled reports whether the process has an identity.
func (t TLS) Enabled() bool { return t.CertFile != "" }

// Check: an identity is whole, and is absent only in development.
func (c Common) Check(problem func(key, rule string)) {
	files := []struct{ key, path string }{
		{"tls.cert_file", c.TLS.CertFile}, {"tls.key_file", c.TLS.KeyFile}, {"tls.ca_file", c.TLS.CAFile},
	}
	given := 0
	for _, f := range files {
		if f.path != "" {
			given++
		}
	}
	for _, f := range files {
		switch {
		case f.path != "":
		case given > 0:
			problem(f.key, "must be given together with the other tls keys")
		case !c.Dev:
			problem(f.key, "is required unless dev: true")
		}
	}
}
