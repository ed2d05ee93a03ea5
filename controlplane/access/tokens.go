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
type Tokens struct {
	View  *view.View
	Clock clock.Clock
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
	token, known := s.Token(id)
	if admitted, _ := token.Admits(secret, t.Clock.Now()); !known || !admitted {
		return transport.Principal{}, fmt.Errorf("%w: the token is not known, has expired or was revoked", rpcstatus.ErrUnauthenticated)
	}
	return transport.Principal{Name: token.Name, Role: token.Role, Regions: token.Regions, Issuers: token.Issuers}, nil
}
