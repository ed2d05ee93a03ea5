package orders

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// A batch that waited for more has two fetches of one partition. Applied at once and apart, the later
// could advance the position over the earlier one's messages, and their customers would wait for ever.
func TestTwoFetchesOfOnePartitionStayInOrder(t *testing.T) {
	fetch := func(partition int32, offsets ...int64) kgo.Fetch {
		p := kgo.FetchPartition{Partition: partition}
		for _, o := range offsets {
			p.Records = append(p.Records, &kgo.Record{Partition: partition, Offset: o})
		}
		return kgo.Fetch{Topics: []kgo.FetchTopic{{Topic: "t", Partitions: []kgo.FetchPartition{p}}}}
	}
	got := byPartition(kgo.Fetches{fetch(0, 1, 2), fetch(1, 7), fetch(0, 3), fetch(2)})
	if len(got) != 2 || len(got[0]) != 3 || len(got[1]) != 1 {
		t.Fatalf("by partition: %v", got)
	}
	for i, r := range got[0] {
		if r.Offset != int64(i+1) {
			t.Fatalf("offset %d at place %d", r.Offset, i)
		}
	}
}
