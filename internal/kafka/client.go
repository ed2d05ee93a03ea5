package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/cellquota/cellquota/internal/secretfile"
	"github.com/cellquota/cellquota/internal/transport"
)

// The ways of logging in by a password.
const (
	Plain       = "PLAIN"
	ScramSHA256 = "SCRAM-SHA-256"
	ScramSHA512 = "SCRAM-SHA-512"
)

// Access says how brokers are reached; the zero value is plain text on this machine, as
// nobody.
type Access struct {
	// TLS encrypts; nil: plain text, which does not leave this machine.
	TLS *transport.TLS
	// Mechanism is Plain, ScramSHA256 or ScramSHA512; "" or "none": no login.
	Mechanism string
	User      string
	// PasswordFile is read at every login; a trailing line break is not part of it.
	PasswordFile string
}

// ErrMechanism is a way of logging in that there is not.
var ErrMechanism = errors.New("sasl.mechanism must be PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512")

// New makes a client of the brokers; it dials on first use. Without Access.Options it
// speaks plain text on this machine. Close it when done.
func New(brokers []string, options ...kgo.Opt) (*kgo.Client, error) {
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(brokers...), kgo.Dialer(transport.StoreDialer(nil))}, options...)...)
	if err != nil {
		return nil, fmt.Errorf("kafka.brokers: %w", err)
	}
	return client, nil
}

// Options are what New needs for this access. ErrMechanism.
func (a Access) Options() ([]kgo.Opt, error) {
	options := []kgo.Opt{kgo.Dialer(transport.StoreDialer(a.TLS))}
	switch a.Mechanism {
	case "", "none":
		return options, nil
	case Plain:
		return append(options, kgo.SASL(plain.Plain(func(ctx context.Context) (plain.Auth, error) {
			password, err := a.password(ctx)
			return plain.Auth{User: a.User, Pass: password}, err
		}))), nil
	case ScramSHA256:
		return append(options, kgo.SASL(a.scram(scram.Sha256))), nil
	case ScramSHA512:
		return append(options, kgo.SASL(a.scram(scram.Sha512))), nil
	default:
		return nil, fmt.Errorf("%w, not %q", ErrMechanism, a.Mechanism)
	}
}

func (a Access) scram(of func(func(context.Context) (scram.Auth, error)) sasl.Mechanism) sasl.Mechanism {
	return of(func(ctx context.Context) (scram.Auth, error) {
		password, err := a.password(ctx)
		return scram.Auth{User: a.User, Pass: password}, err
	})
}

func (a Access) password(ctx context.Context) (string, error) {
	text, err := secretfile.Read(ctx, a.PasswordFile)
	if err != nil {
		return "", fmt.Errorf("sasl.password_file: %s: %s", a.PasswordFile, secretfile.Class(err))
	}
	return strings.TrimRight(string(text), "\r\n"), nil
}
