//go:build system

package system

import (
	"testing"
	"time"
)

// The short version of TestChaosControlPlane, for every build.
func TestControlPlaneFaults(t *testing.T) { controlPlaneChaos(t, 15*time.Second, 20261129) }
