package core_test

import (
	"slices"
	"testing"

	"github.com/cellquota/cellquota/controlplane/core"
)

// Plain text is spoken on this machine and with dev only; every store that breaks the
// rule is named by its key.
func TestStoresAreEncrypted(t *testing.T) {
	tls := core.StoreTLS{CAFile: "/ca.pem"}
	const redis, kafka = "redis.tls.ca_file", "kafka.tls.ca_file"
	for name, row := range map[string]struct {
		redis, kafka []string
		redisTLS     core.StoreTLS
		kafkaTLS     core.StoreTLS
		dev          bool
		want         []string
	}{
		"dev on loopback":        {redis: []string{"127.0.0.1:1", "[::1]:1"}, kafka: []string{"localhost:2"}, dev: true},
		"loopback without dev":   {redis: []string{"127.0.0.1:1"}, kafka: []string{"127.0.0.1:2"}, want: []string{redis, kafka}},
		"dev on another machine": {redis: []string{"127.0.0.1:1", "10.0.0.1:1"}, kafka: []string{"127.0.0.1:2"}, dev: true, want: []string{redis}},
		"a name is no loopback":  {redis: []string{"127.0.0.1:1"}, kafka: []string{"localhost.example:2"}, dev: true, want: []string{kafka}},
		"encrypted":              {redis: []string{"10.0.0.1:1"}, kafka: []string{"10.0.0.2:2"}, redisTLS: tls, kafkaTLS: tls},
		"one of two":             {redis: []string{"10.0.0.1:1"}, kafka: []string{"10.0.0.2:2"}, kafkaTLS: tls, want: []string{redis}},
	} {
		t.Run(name, func(t *testing.T) {
			spec := core.CellSpec{Redis: core.RedisSpec{Addrs: row.redis, TLS: row.redisTLS}, Kafka: core.KafkaSpec{Brokers: row.kafka, TLS: row.kafkaTLS}}
			var got []string
			for _, v := range spec.Encrypted(row.dev) {
				got = append(got, v.Field)
			}
			if !slices.Equal(got, row.want) {
				t.Errorf("refused %v, want %v", got, row.want)
			}
		})
	}
}

// A block of half an identity, of a login without a password, is a fault of its key.
func TestStoreFilesBelongTogether(t *testing.T) {
	for name, row := range map[string]struct {
		tls  core.StoreTLS
		sasl core.KafkaSASL
		want string
	}{
		"certificate without key":    {core.StoreTLS{CAFile: "ca", CertFile: "c"}, core.KafkaSASL{}, "kafka.tls.cert_file"},
		"no authorities":             {core.StoreTLS{CertFile: "c", KeyFile: "k"}, core.KafkaSASL{}, "kafka.tls.ca_file"},
		"a name and no authorities":  {core.StoreTLS{ServerName: "kafka"}, core.KafkaSASL{}, "kafka.tls.ca_file"},
		"a secret for a file":        {core.StoreTLS{CAFile: "a\nb"}, core.KafkaSASL{}, "kafka.tls.ca_file"},
		"unknown mechanism":          {core.StoreTLS{}, core.KafkaSASL{Mechanism: "GSSAPI", User: "u", PasswordFile: "p"}, "kafka.sasl.mechanism"},
		"nobody logs in":             {core.StoreTLS{}, core.KafkaSASL{Mechanism: "PLAIN", PasswordFile: "p"}, "kafka.sasl.user"},
		"without a file of password": {core.StoreTLS{}, core.KafkaSASL{Mechanism: "PLAIN", User: "u"}, "kafka.sasl.password_file"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := core.CellSpec{Kafka: core.KafkaSpec{TLS: row.tls, SASL: row.sasl}}
			for _, v := range spec.Check() {
				if v.Field == row.want {
					return
				}
			}
			t.Errorf("%s is not named in %v", row.want, spec.Check())
		})
	}
}
