package events

import "time"

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
