package transport

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/credentials"

	"github.com/cellquota/cellquota/internal/rpcstatus"
)

var (
	errNoAuthenticator = fmt.Errorf("%w: this server knows nobody", rpcstatus.ErrUnauthenticated)
	errNameless        = fmt.Errorf("%w: a principal needs a name", rpcstatus.ErrUnauthenticated)
	errNoCredentials   = fmt.Errorf("%w: credentials needed", rpcstatus.ErrUnauthenticated)
)

// FirstOf asks one authenticator after the other, until one says something else
// than ErrUnauthenticated.
func FirstOf(authenticators ...Authenticator) Authenticator {
	return func(ctx context.Context, c Caller) (Principal, error) {
		for _, ask := range authenticators {
			p, err := ask(ctx, c)
			if err == nil || !errors.Is(err, rpcstatus.ErrUnauthenticated) {
				return p, err
			}
		}
		return Principal{}, errNoCredentials
	}
}

// Certificates knows the processes of a trust domain by their certificates:
// spiffe://DOMAIN/cell/cell-1 is {Name: "cell/cell-1", Role: "cell"}.
func Certificates(domain string) Authenticator {
	return func(_ context.Context, c Caller) (Principal, error) {
		kind, id, ok := c.Workload(domain)
		if !ok {
			return Principal{}, errNoCredentials
		}
		return Principal{Name: kind + "/" + id, Role: kind}, nil
	}
}

// workloadHeader names the caller where no certificate does.
const workloadHeader = "cellquota-dev-workload"

// DevWorkloads believes what DialOptions.Workload says, on an unencrypted
// connection of this machine only. Use it when Dev is set and never otherwise.
func DevWorkloads() Authenticator {
	return func(_ context.Context, c Caller) (Principal, error) {
		names := c.Metadata.Get(workloadHeader)
		if c.Encrypted || !local(c.Addr) || len(names) != 1 {
			return Principal{}, errNoCredentials
		}
		kind, _, ok := splitWorkload(names[0])
		if !ok {
			return Principal{}, errNoCredentials
		}
		return Principal{Name: names[0], Role: kind}, nil
	}
}

// bearer adds the token of DialOptions.Token to each call.
type bearer struct {
	token func(context.Context) (string, error)
	dev   bool
}

func (b bearer) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	token, err := b.token(ctx)
	if err != nil || token == "" {
		return nil, err
	}
	return map[string]string{"authorization": "Bearer " + token}, nil
}

// RequireTransportSecurity keeps tokens off unencrypted connections.
func (b bearer) RequireTransportSecurity() bool { return !b.dev }

// workload adds the development name to each call.
type workload string

func (w workload) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{workloadHeader: string(w)}, nil
}

func (workload) RequireTransportSecurity() bool { return false }

var (
	_ credentials.PerRPCCredentials = bearer{}
	_ credentials.PerRPCCredentials = workload("")
)
