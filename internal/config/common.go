package config

import "time"

// Common are the keys every server process has. Embed it.
type Common struct {
	Dev              bool          `config:"dev" default:"false" doc:"local development: plain text on loopback, reflection, clock offsets"`
	LogLevel         string        `config:"log_level" default:"info" oneof:"debug,info,warn,error" doc:"lowest level that is logged; can be changed on the metrics port"`
	MetricsAddr      string        `config:"metrics_addr" default:"127.0.0.1:9464" min:"1" doc:"where metrics, health, readiness, profiles and the log level are served"`
	MetricsTLS       bool          `config:"metrics_tls" default:"false" doc:"serve the metrics port over TLS with the certificate of tls.cert_file also on loopback; off loopback that is always so"`
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

// Enabled reports whether the process has an identity.
func (t TLS) Enabled() bool { return t.CertFile != "" }

// Check: an identity is whole, and is absent only in development.
func (c Common) Check(problem func(key, rule string)) {
	if c.TLS.CertFile == "" && (c.MetricsTLS || !Loopback(c.MetricsAddr)) {
		problem("tls.cert_file", "is required where the metrics port is encrypted: metrics_tls, or a metrics_addr off loopback")
	}
	if c.MetricsTokenFile == "" && !Loopback(c.MetricsAddr) {
		problem("metrics_token_file", "is required unless metrics_addr is on loopback")
	}
	if c.Trace.Endpoint != "" && !Encrypted(c.Trace.Endpoint, true) {
		problem("trace.endpoint", "must begin with https:// unless the collector is on loopback: "+plainText)
	}
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
