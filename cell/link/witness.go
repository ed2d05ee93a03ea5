package link

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/cellquota/cellquota/cell/admission"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/fencing"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/telemetry"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// observeEvery is how often a process looks how far its shard came, and the reporter tells of it.
const observeEvery = time.Second

// witnessOf is a sight as it travels; nil for a schema that shows none.
func witnessOf(seen shard.Sight) (*pb.ShardWitness, error) {
	if seen.JSON == nil {
		return nil, nil
	}
	var m pb.ShardWitness
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(seen.JSON, &m); err != nil {
		return nil, fmt.Errorf("what the shard says of itself: %w", err)
	}
	return &m, nil
}

// mirrored is what a mirror saw of the shard that it was built from.
func mirrored(campaign ids.CampaignID, sku ids.SKUID, f admission.Facts) fencing.Witness {
	return fencing.Witness{Stocks: map[fencing.SKU]fencing.Mark{
		{Campaign: string(campaign), SKU: string(sku)}: {AdjustmentVersion: f.Build.Fence, LastNumber: f.LastNumber, StockVersion: f.BaseVersion},
	}}
}

// observer remembers what was told of the shard on this stream. The zero value has told nothing.
type observer struct {
	at   time.Time
	told []byte
}

// observe looks how far the shard came, about once a second in every process, so that each remembers.
// It gives what the reporter has to tell; nil: nothing new.
func (s *session) observe(ctx context.Context, o *observer) *pb.ShardWitness {
	now := s.Clock.Now()
	if now.Sub(o.at) < observeEvery {
		return nil
	}
	o.at = now
	within, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	seen, err := s.Shard.Observe(within)
	if err != nil || s.Shard.Doubt().Why != "" || bytes.Equal(seen.JSON, o.told) {
		return nil
	}
	witness, err := witnessOf(seen)
	if err != nil {
		s.Logger.WarnContext(ctx, "the shard's witness cannot be told", telemetry.Event, "witness_untold", telemetry.Error, err.Error())
		return nil
	}
	if s.reports.Load() {
		o.told = seen.JSON
	}
	return witness
}
