package kafka_test

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cellquota/cellquota/internal/kafka"
	"github.com/cellquota/cellquota/internal/testkit"
	"github.com/cellquota/cellquota/internal/transport"
)

// ping makes a client with this access and asks the brokers once.
func ping(t *testing.T, a kafka.Access, brokers []string) error {
	t.Helper()
	options, err := a.Options()
	if err != nil {
		return err
	}
	client, err := kafka.New(brokers, append(options, kgo.RequestRetries(0), kgo.RetryTimeout(5*time.Second))...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	return client.Ping(t.Context())
}

func identity(t *testing.T, f transport.TLSFiles) *transport.TLS {
	t.Helper()
	loaded, err := transport.LoadTLS(f, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return loaded
}

// Brokers with TLS and logins take the right client and no other; the password is read
// at each login, so that a new one is used without a restart.
func TestTLSAndLogins(t *testing.T) {
	files := testkit.NewAuthority(t).Issue(t.TempDir())
	cluster := testkit.KafkaWith(t, 1, kfake.TLS(files.Server(t)), kfake.EnableSASL(),
		kfake.Superuser("PLAIN", "ann", "hunter2"), kfake.Superuser("SCRAM-SHA-256", "ben", "hunter2"), kfake.Superuser("SCRAM-SHA-512", "cid", "hunter2"))
	password := filepath.Join(t.TempDir(), "password")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(password, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("hunter2\n")
	known := identity(t, transport.TLSFiles{CAFile: files.CA})
	stranger := identity(t, transport.TLSFiles{CAFile: testkit.NewAuthority(t).Issue(t.TempDir()).CA})
	for name, row := range map[string]struct {
		access kafka.Access
		ok     bool
	}{
		"PLAIN":                  {kafka.Access{TLS: known, Mechanism: kafka.Plain, User: "ann", PasswordFile: password}, true},
		"SCRAM-SHA-256":          {kafka.Access{TLS: known, Mechanism: kafka.ScramSHA256, User: "ben", PasswordFile: password}, true},
		"SCRAM-SHA-512":          {kafka.Access{TLS: known, Mechanism: kafka.ScramSHA512, User: "cid", PasswordFile: password}, true},
		"nobody":                 {kafka.Access{TLS: known}, false},
		"another's name":         {kafka.Access{TLS: known, Mechanism: kafka.Plain, User: "ben", PasswordFile: password}, false},
		"plain text":             {kafka.Access{Mechanism: kafka.Plain, User: "ann", PasswordFile: password}, false},
		"other authorities":      {kafka.Access{TLS: stranger, Mechanism: kafka.Plain, User: "ann", PasswordFile: password}, false},
		"no file of a password":  {kafka.Access{TLS: known, Mechanism: kafka.Plain, User: "ann", PasswordFile: password + "x"}, false},
		"a device as a password": {kafka.Access{TLS: known, Mechanism: kafka.Plain, User: "ann", PasswordFile: "/dev/zero"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			err := ping(t, row.access, cluster.Brokers())
			if row.ok != (err == nil) {
				t.Errorf("got %v", err)
			}
			if err != nil && strings.Contains(err.Error(), "hunter2") {
				t.Errorf("told the password: %v", err)
			}
		})
	}
	ann := kafka.Access{TLS: known, Mechanism: kafka.Plain, User: "ann", PasswordFile: password}
	options, err := ann.Options()
	if err != nil {
		t.Fatal(err)
	}
	client, err := kafka.New(cluster.Brokers(), append(options, kgo.RequestRetries(0))...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	write("old")
	if err := client.Ping(t.Context()); err == nil {
		t.Error("logged in by a password that is wrong")
	}
	write("hunter2")
	if err := client.Ping(t.Context()); err != nil {
		t.Errorf("the password's file was not read again: %v", err)
	}
}

// Plain text is for this machine: also where a broker on it names another one.
func TestPlainTextIsLocal(t *testing.T) {
	if err := ping(t, kafka.Access{}, testkit.Kafka(t, 1).Brokers()); err != nil {
		t.Errorf("loopback: %v", err)
	}
	if err := ping(t, kafka.Access{}, []string{"192.0.2.1:9092"}); !errors.Is(err, transport.ErrPlainStore) {
		t.Errorf("another machine: %v", err)
	}
	if err := ping(t, kafka.Access{Mechanism: "GSSAPI"}, nil); !errors.Is(err, kafka.ErrMechanism) {
		t.Errorf("a mechanism that there is not: %v", err)
	}
}
