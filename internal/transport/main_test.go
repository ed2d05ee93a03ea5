package transport_test

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails when a goroutine outlives the tests: nobody owned it.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
