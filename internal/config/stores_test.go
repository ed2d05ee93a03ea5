package config_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/cellquota/cellquota/internal/config"
)

// One rule for every store: plain text is for dev on loopback.
func TestStoresAreEncrypted(t *testing.T) {
	here, away := []string{"127.0.0.1:1", "http://localhost:2", "[::1]:3"}, []string{"127.0.0.1:1", "redis.example:6379"}
	ca := config.StoreTLS{CAFile: "ca"}
	for name, row := range map[string]struct {
		tls   config.StoreTLS
		dev   bool
		addrs []string
		want  string // the key that is refused
	}{
		"dev on loopback":      {config.StoreTLS{}, true, here, ""},
		"loopback without dev": {config.StoreTLS{}, false, here, "x.ca_file"},
		"dev elsewhere":        {config.StoreTLS{}, true, away, "x.ca_file"},
		"elsewhere":            {config.StoreTLS{}, false, away, "x.ca_file"},
		"a name of every host": {config.StoreTLS{}, true, []string{":6379"}, "x.ca_file"},
		"encrypted":            {ca, false, away, ""},
		"half an identity":     {config.StoreTLS{CAFile: "ca", CertFile: "c"}, false, away, "x.cert_file"},
		"no authorities":       {config.StoreTLS{CertFile: "c", KeyFile: "k"}, true, here, "x.ca_file"},
		"a name, no authority": {config.StoreTLS{ServerName: "n"}, true, here, "x.ca_file"},
	} {
		var got []string
		row.tls.Check(func(key, _ string) { got = append(got, key) }, "x", row.dev, row.addrs)
		if want := strings.Fields(row.want); !slices.Equal(got, want) {
			t.Errorf("%s: refused %q, want %q", name, got, want)
		}
	}
}

// A login has a mechanism, a name and a password, or nothing.
func TestLoginsAreWhole(t *testing.T) {
	for want, l := range map[string]config.SASL{
		"":                {Mechanism: "none"},
		" ":               {Mechanism: "PLAIN", User: "u", PasswordFile: "p"},
		"x.mechanism":     {Mechanism: "none", User: "u"},
		"x.user":          {Mechanism: "PLAIN", PasswordFile: "p"},
		"x.password_file": {Mechanism: "SCRAM-SHA-512", User: "u"},
	} {
		var got []string
		l.Check(func(key, _ string) { got = append(got, key) }, "x")
		if !slices.Equal(got, strings.Fields(want)) {
			t.Errorf("%+v: refused %q, want %q", l, got, want)
		}
	}
}

// The metrics port and the collector of traces follow the rule, but that each may be on
// loopback without dev: what answers there is on this machine.
func TestMetricsAndTracesAreEncrypted(t *testing.T) {
	identity := config.TLS{CertFile: "c", KeyFile: "k", CAFile: "a"}
	for name, row := range map[string]struct {
		c    config.Common
		want string
	}{
		"all on loopback":        {config.Common{TLS: identity, MetricsAddr: "127.0.0.1:1", Trace: config.Trace{Endpoint: "localhost:4317"}}, ""},
		"metrics elsewhere":      {config.Common{TLS: identity, MetricsAddr: "0.0.0.0:1", MetricsTokenFile: "t"}, ""},
		"metrics, no token":      {config.Common{TLS: identity, MetricsAddr: ":1"}, "metrics_token_file"},
		"metrics, no identity":   {config.Common{Dev: true, MetricsAddr: "10.0.0.1:1", MetricsTokenFile: "t"}, "tls.cert_file"},
		"encrypted, no identity": {config.Common{Dev: true, MetricsAddr: "127.0.0.1:1", MetricsTLS: true}, "tls.cert_file"},
		"traces elsewhere":       {config.Common{TLS: identity, MetricsAddr: "127.0.0.1:1", Trace: config.Trace{Endpoint: "otel:4317"}}, "trace.endpoint"},
		"encrypted traces":       {config.Common{TLS: identity, MetricsAddr: "127.0.0.1:1", Trace: config.Trace{Endpoint: "https://otel:4317"}}, ""},
	} {
		var got []string
		row.c.Check(func(key, _ string) { got = append(got, key) })
		if !slices.Equal(got, strings.Fields(row.want)) {
			t.Errorf("%s: refused %q, want %q", name, got, row.want)
		}
	}
}
