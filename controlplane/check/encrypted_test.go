package check_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/cellquota/cellquota/controlplane/check"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/topics"
	"github.com/cellquota/cellquota/internal/testkit"
)

// keyed are the subjects of the faults that name a key of the file.
func (p *plant) keyed(c check.Checker) (keys []string) {
	p.t.Helper()
	for _, f := range c.Look(p.ctx, p.s) {
		if !f.OK && !strings.Contains(f.Subject, " ") {
			keys = append(keys, f.Subject)
		}
		if strings.Contains(f.Seen+f.Rule, "hunter2") {
			p.t.Errorf("a secret is told: %+v", f)
		}
	}
	slices.Sort(keys)
	return keys
}

// What would go over the network in plain text is named by its key and not dialled;
// without dev, so is what stays on this machine.
func TestPlainTextIsNamed(t *testing.T) {
	p := newPlant(t)
	everything := []string{"kafka.tls.ca_file", "redis.tls.ca_file", "shard.fencer_dsn_file", "shard.reader_dsn_file"}
	lax, strict := check.New(p.cfg, p.clock), check.New(p.cfg, p.clock).Encrypted(true)
	if got := p.keyed(lax); len(got) > 0 {
		t.Errorf("dev on loopback: %q", got)
	}
	if got := p.keyed(strict); !slices.Equal(got, everything) {
		t.Errorf("without dev: %q", got)
	}
	p.s.Spec.Redis.Addrs, p.s.Spec.Kafka.Brokers = []string{"192.0.2.1:6379"}, []string{"192.0.2.1:9092"}
	p.s.Spec.Redis.PasswordFile = p.file("password", "hunter2")
	p.s.Spec.Shard.ReaderDSNFile = p.file("reader", "postgres://r:hunter2@192.0.2.1/d?sslmode=require")
	p.s.Spec.Shard.FencerDSNFile = p.file("fencer", "host=192.0.2.1 user=f password=hunter2")
	if got := p.keyed(lax); !slices.Equal(got, everything) {
		t.Errorf("dev on another machine: %q", got)
	}
}

// A cell whose Redis and brokers speak TLS, and ask who logs in, is looked at by the
// files that its spec names, and its topic is made by them. Files that do not fit are
// named.
func TestEncryptedCell(t *testing.T) {
	p := newPlant(t)
	files := testkit.NewAuthority(t).Issue(t.TempDir())
	p.redis = testkit.RedisTLS(t, files, "--appendonly", "yes")
	p.kafka = testkit.KafkaWith(t, 1, kfake.TLS(files.Server(t)), kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-256", "ann", "hunter2"))
	known := core.StoreTLS{CAFile: files.CA}
	spec := &p.s.Spec
	spec.Redis.Addrs, spec.Redis.TLS = []string{p.redis.Addr()}, known
	spec.Kafka.Brokers, spec.Kafka.TLS = p.kafka.Brokers(), known
	spec.Kafka.SASL = core.KafkaSASL{Mechanism: "SCRAM-SHA-256", User: "ann", PasswordFile: p.file("password", "hunter2")}
	if err := (topics.Kafka{}).Ensure(p.ctx, spec.Kafka); err != nil {
		t.Fatalf("the topic is not made: %v", err)
	}
	p.one()
	good := *spec
	for _, row := range []struct {
		name string
		do   func()
		want string
	}{
		{"other authorities", func() {
			spec.Redis.TLS.CAFile = testkit.NewAuthority(t).Issue(t.TempDir()).CA
		}, "redis " + p.redis.Addr()},
		{"no authorities in the file", func() { spec.Redis.TLS.CAFile = p.file("x", "nothing") }, "redis.tls"},
		{"no such file", func() { spec.Kafka.TLS.CAFile = "/none" }, "kafka.tls.ca_file"},
		{"a device", func() { spec.Kafka.TLS.CAFile = "/dev/zero" }, "kafka.tls.ca_file"},
		{"a wrong password", func() { spec.Kafka.SASL.PasswordFile = p.file("x", "hunter3") }, "broker " + p.kafka.Brokers()[0]},
		{"no password", func() { spec.Kafka.SASL.PasswordFile = "/none" }, "kafka.sasl.password_file"},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.do()
			p.one(row.want)
			*spec = good
		})
	}
}
