package access

import (
	"context"
	"fmt"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/transport"
)

// Tokens knows operators by the tokens that etcd lists, as the replica's view has
// them: a token is refused as soon as the view has its revocation. While etcd is
// away the view keeps its age, and so does what a token may read; whatever
// changes something needs etcd itself.
//
// While etcd is known to have lost its past no token is taken: one that was revoked
// since the backup is valid in it, and nothing tells it from the others (ADR 0011).
type Tokens struct {
	View  *view.View
	Clock clock.Clock
	// Lost gives why this replica knows that etcd lost its past, or ""; nil: only the
	// standing record counts.
	Lost func() string
}

// Authenticate knows a caller by a token of ours. Why it is refused is not told
// to the caller: the answer is the same for all.
func (t Tokens) Authenticate(_ context.Context, c transport.Caller) (transport.Principal, error) {
	text, _ := c.Bearer()
	id, secret, ours := core.SplitToken(text)
	if !ours {
		return transport.Principal{}, fmt.Errorf("%w: a bearer token is needed", rpcstatus.ErrUnauthenticated)
	}
	s := t.View.Snapshot()
	if s.Revision() == 0 {
		return transport.Principal{}, fmt.Errorf("%w: no token was read from etcd yet", rpcstatus.ErrUnavailable)
	}
	if _, stands := s.Restored(); stands || t.Lost != nil && t.Lost() != "" {
		return transport.Principal{}, fmt.Errorf("%w: etcd lost its past, and with it which tokens were revoked: until it is recovered only operators of operators_file and certificates are taken", rpcstatus.ErrUnauthenticated)
	}
	token, known := s.Token(id)
	if admitted, _ := token.Admits(secret, t.Clock.Now()); !known || !admitted {
		return transport.Principal{}, fmt.Errorf("%w: the token is not known, has expired or was revoked", rpcstatus.ErrUnauthenticated)
	}
	return transport.Principal{Name: token.Name, Role: token.Role, Regions: token.Regions, Issuers: token.Issuers}, nil
}
