package rebuild

import (
	"github.com/cellquota/cellquota/cell/admission"
	"github.com/cellquota/cellquota/internal/ids"
)

// Cause says why a mirror is not fit. It is a metric label.
type Cause string

// The causes, in the order in which they are looked for.
const (
	Fit         Cause = ""             // nothing is wrong
	Stale       Cause = "stale"        // the meta knows a higher fence version than this process
	Missing     Cause = "missing"      // no meta
	OtherServer Cause = "other_server" // Redis was restarted or failed over since the build
	OtherShard  Cause = "other_shard"  // built from another PostgreSQL or timeline
	FenceBehind Cause = "fence_behind" // built under a lower fence version
	OtherBuild  Cause = "other_build"  // not the build that the shard raised
	Paused      Cause = "paused"       // a rebuild began and did not end
	Damaged     Cause = "damaged"      // a key that never is empty is gone
)

// Causes lists every cause but Fit.
func Causes() []Cause {
	return []Cause{Stale, Missing, OtherServer, OtherShard, FenceBehind, OtherBuild, Paused, Damaged}
}

// sight is what one look at a mirror saw.
type sight struct {
	facts  []admission.Facts // one per SKU, at least one
	server string            // Redis processes that answer
	shard  string            // identity of the shard
	fence  int64             // version this process writes under
	raised ids.Build         // by the shard; zero: none
}

// judge decides whether a mirror may be admitted into. Pure.
func judge(s sight) Cause {
	head := s.facts[0]
	switch {
	case head.Present && head.Fence > s.fence:
		return Stale
	case !head.Present:
		return Missing
	case head.Server != s.server:
		return OtherServer
	case head.Shard != s.shard:
		return OtherShard
	case head.Fence < s.fence, head.Build.Fence < s.fence:
		return FenceBehind
	case head.Build != s.raised:
		return OtherBuild
	case head.State != admission.Ready:
		return Paused
	}
	for _, f := range s.facts {
		if !f.Whole || f.Gate == 0 || f.Build != head.Build {
			return Damaged
		}
	}
	return Fit
}
