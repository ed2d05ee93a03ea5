package events

import (
	"math/rand/v2"
	"time"
)

// How a cell's Kafka clients learn where partitions are, and how soon they ask again.
//
// MetadataMinAge is the least time between two questions. The client's own 5 s is for clusters of many
// thousand clients; here it is how long a cell sells nothing after the broker is back, or another one
// leads.
//
// MetadataMaxAge is when a client asks although nothing failed: a consumer learns of partitions that were
// added (K80). With the client's own 5 minutes their messages would wait for that long, and the gate
// pause the sale of their SKUs.
const (
	MetadataMinAge = 500 * time.Millisecond
	MetadataMaxAge = 10 * time.Second
)

// Bounds of the pause before a Kafka client tries again; its own longest is 2.5 s.
const (
	retryMin = 100 * time.Millisecond
	retryMax = 500 * time.Millisecond
)

// RetryBackoff is the pause before a try, counted from 1: doubling up to half a second, so that a cell sells
// soon after its broker is back, and spread by half, so that all clients of all cells do not come at once.
func RetryBackoff(tries int) time.Duration {
	d := retryMin << min(max(tries-1, 0), 8)
	d = min(d, retryMax)
	return d/2 + time.Duration(rand.Int64N(int64(d)))
}
