package events

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/cellquota/cellquota/internal/ids"
	eventsv1 "github.com/cellquota/cellquota/proto/cellquota/events/v1"
	cellquotav1 "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// EncodeBarrier encodes a barrier, deterministically.
func EncodeBarrier(m *eventsv1.Barrier) ([]byte, error) {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return nil, malformed(err)
	}
	return b, nil
}

// DecodeBarrier reads the value of a barrier. A scope or build that is none, or a
// partition outside [0, partitions), is ErrMalformed.
func DecodeBarrier(value []byte) (*eventsv1.Barrier, error) {
	m := &eventsv1.Barrier{}
	if err := proto.Unmarshal(value, m); err != nil {
		return nil, malformed(err)
	}
	if _, err := ids.ParseCampaignID(m.GetCampaignId()); err != nil {
		return nil, malformed(err)
	}
	if m.GetSkuId() != "" {
		if _, err := ids.ParseSKUID(m.GetSkuId()); err != nil {
			return nil, malformed(err)
		}
	}
	if _, err := BuildOf(m.GetBuild()); err != nil {
		return nil, err
	}
	if m.GetPartition() < 0 || m.GetPartition() >= m.GetPartitions() {
		return nil, fmt.Errorf("%w: partition must be below partitions", ErrMalformed)
	}
	return m, nil
}

// BuildOf reads a build; fence version and count must lie in 1 to
// ids.MaxBuildPart, else ErrMalformed.
func BuildOf(b *cellquotav1.Build) (ids.Build, error) {
	out := ids.Build{Fence: b.GetFenceVersion(), Count: b.GetCount()}
	if out.Fence < 1 || out.Count < 1 || out.Fence > ids.MaxBuildPart || out.Count > ids.MaxBuildPart {
		return ids.Build{}, fmt.Errorf("%w: build must have a fence version and a count of at least 1", ErrMalformed)
	}
	return out, nil
}

// ProtoBuild is b as a message; nil for the zero Build, "none".
func ProtoBuild(b ids.Build) *cellquotav1.Build {
	if b.IsZero() {
		return nil
	}
	return &cellquotav1.Build{FenceVersion: b.Fence, Count: b.Count}
}
