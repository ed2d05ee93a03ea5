//go:build system

package system

import (
	"testing"
	"time"
)

// Every fault of a store or a wire for a few seconds in one running sale.
func TestStoresFail(t *testing.T) {
	startWired(t, 2, "--restart", "--set", "cell.payment.attempt_grace=2s").suffer("stores-fail", hurts(2*time.Second))
}
