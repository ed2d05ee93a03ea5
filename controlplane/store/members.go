package store

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/cellquota/cellquota/internal/telemetry"
)

// memberPatience is how long a member may take to say that it is there.
const memberPatience = 700 * time.Millisecond

// choose leaves the members out that do not answer now, so that neither reads nor
// watches go to one that is frozen or cut off: it keeps its connections, and gRPC's
// keep-alive, at ten seconds at the least, would find it out only late. When none
// answers all are kept. It runs before a listing, which is what follows every end of
// a watch, and from time to time while a member is left out.
func (s *Store) choose(ctx context.Context) {
	if len(s.members) < 2 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, memberPatience)
	defer cancel()
	answers := make([]bool, len(s.members))
	var all sync.WaitGroup
	for i, member := range s.members {
		all.Go(func() {
			_, err := s.client.Status(ctx, member)
			answers[i] = err == nil
		})
	}
	all.Wait()
	var there []string
	for i, member := range s.members {
		if answers[i] {
			there = append(there, member)
		}
	}
	if len(there) == 0 {
		there = s.members
	}
	if !slices.Equal(there, s.client.Endpoints()) {
		s.log.WarnContext(ctx, "members of etcd that are used", telemetry.Event, "etcd_members", "members", there, "of", len(s.members))
		s.client.SetEndpoints(there...)
	}
}

// leftOut tells whether a configured member is not used now.
func (s *Store) leftOut() bool { return len(s.client.Endpoints()) < len(s.members) }
