package shard

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/cellquota/cellquota/internal/ids"
	cellquotav1 "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// maxSpecs bounds the kept specs; beyond it all are dropped and read again.
const maxSpecs = 256

// spec is the part of a campaign's rules that is in no column.
type spec struct {
	version     int64
	maxQuantity int32
	ttlByRisk   map[string]time.Duration
	restock     bool // a refunded unit returns to sale
	cancelled   bool // nothing is sold any more, and never will be
}

func specOf(rules *cellquotav1.CampaignRules) spec {
	s := rules.GetSpec()
	out := spec{
		cancelled:   rules.GetCancelled(),
		maxQuantity: max(s.GetMaxQuantityPerOrder(), 1), ttlByRisk: map[string]time.Duration{},
		restock: s.GetRefundRule() == cellquotav1.RefundRule_REFUND_RULE_RESTOCK,
	}
	for tier, d := range s.GetHolds().GetPaymentTtlByRisk() {
		out.ttlByRisk[tier] = d.AsDuration()
	}
	return out
}

// specCache keeps decoded specs by campaign, newest version only.
type specCache struct {
	mu   sync.Mutex
	kept map[ids.CampaignID]spec
}

func (c *specCache) get(campaign ids.CampaignID, version int64) (spec, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, ok := c.kept[campaign]
	return s, ok && s.version == version
}

func (c *specCache) put(campaign ids.CampaignID, version int64, s spec) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kept == nil || len(c.kept) >= maxSpecs {
		c.kept = map[ids.CampaignID]spec{}
	}
	s.version = version
	c.kept[campaign] = s
}

// specFor is the decoded spec of a campaign. Specs are kept by version; the version was read in this
// transaction, so a kept one is never out of date.
func (s *Store) specFor(ctx context.Context, t tx, campaign ids.CampaignID, version int64) (spec, error) {
	if kept, ok := s.specs.get(campaign, version); ok {
		return kept, nil
	}
	var raw []byte
	if err := t.QueryRow(ctx, sql("batch_rules_spec"), campaign).Scan(&version, &raw); err != nil {
		return spec{}, err
	}
	full := &cellquotav1.CampaignRules{}
	if err := proto.Unmarshal(raw, full); err != nil {
		return spec{}, fmt.Errorf("rules of campaign %s: %w", campaign, err)
	}
	read := specOf(full)
	s.specs.put(campaign, version, read)
	return read, nil
}
