package limit

import (
	"hash/maphash"
	"sync"
)

// Crowd bounds how many calls of one user run at once. A user who is not calling costs nothing.
type Crowd struct {
	max    int
	seed   maphash.Seed
	shards [16]crowdShard
}

type crowdShard struct {
	mu  sync.Mutex
	now map[string]int
}

// NewCrowd returns a bound of so many calls per user; 0: no bound.
func NewCrowd(bound int) *Crowd {
	c := &Crowd{max: bound, seed: maphash.MakeSeed()}
	for i := range c.shards {
		c.shards[i].now = map[string]int{}
	}
	return c
}

// Enter takes a place for user if there is one; whoever got it must Leave.
func (c *Crowd) Enter(user string) bool {
	if c.max <= 0 {
		return true
	}
	s := c.shard(user)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now[user] >= c.max {
		return false
	}
	s.now[user]++
	return true
}

// Leave gives user's place back.
func (c *Crowd) Leave(user string) {
	if c.max <= 0 {
		return
	}
	s := c.shard(user)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now[user]--; s.now[user] <= 0 {
		delete(s.now, user)
	}
}

func (c *Crowd) shard(user string) *crowdShard {
	return &c.shards[maphash.String(c.seed, user)%uint64(len(c.shards))]
}
