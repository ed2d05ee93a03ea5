package api_test

import (
	"fmt"
	"testing"

	"github.com/cellquota/cellquota/controlplane/api"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/rpcstatus"
)

// K45: a full etcd has a reason of its own, UNAVAILABLE, and nothing was done.
func TestNoSpaceHasAReasonOfItsOwn(t *testing.T) {
	if err := rpcstatus.Register(api.Kinds()...); err != nil {
		t.Fatal(err)
	}
	err := fmt.Errorf("top up: %w", core.ErrStoreFull)
	if got := rpcstatus.Reason(err); got != "STORE_NOSPACE" || rpcstatus.MayHaveHappened(err) {
		t.Errorf("reason %q, may have happened %v", got, rpcstatus.MayHaveHappened(err))
	}
}
