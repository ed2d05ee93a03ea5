package shard

import (
	"context"
	"math"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/cellquota/cellquota/cell/reservation"
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
	holds       reservation.Holds
	lottery     *lotterySpec // nil: units go to who comes first
	// unreadable: the rules that the shard has cannot be read. Orders go on being closed and payments
	// taken; what needs the rest of the rules waits, and no order is made (K43).
	unreadable bool
}

// lotterySpec says who may enter when, and with how many tickets.
type lotterySpec struct {
	open, close time.Time
	tiers       map[string]int32
}

// tickets of a tier: its own, the default's, or one.
func (l *lotterySpec) tickets(tier string) int32 {
	if n, named := l.tiers[tier]; named {
		return n
	}
	return max(l.tiers["default"], 1)
}

func specOf(rules *cellquotav1.CampaignRules) spec {
	s := rules.GetSpec()
	out := spec{
		cancelled:   rules.GetCancelled(),
		maxQuantity: max(s.GetMaxQuantityPerOrder(), 1), ttlByRisk: map[string]time.Duration{},
		// A refund after the account was taken gives money back, and no unit: none is on sale any more.
		restock: s.GetRefundRule() == cellquotav1.RefundRule_REFUND_RULE_RESTOCK && rules.GetState() != cellquotav1.CampaignState_CAMPAIGN_STATE_SETTLED,
		holds:   reservation.Holds{PerUser: s.GetHolds().GetMaxUnpaidPerUser(), PerDevice: s.GetHolds().GetMaxUnpaidPerDevice()},
	}
	if l := s.GetLottery(); l != nil && s.GetMode() == cellquotav1.CampaignMode_CAMPAIGN_MODE_LOTTERY {
		out.lottery = &lotterySpec{open: l.GetEntryOpenAt().AsTime(), close: l.GetEntryCloseAt().AsTime(), tiers: l.GetTiers()}
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

// readRules decodes rules as they are stored; nil: they cannot be read, or are not of this campaign.
func readRules(campaign ids.CampaignID, raw []byte) *cellquotav1.CampaignRules {
	rules := &cellquotav1.CampaignRules{}
	if proto.Unmarshal(raw, rules) != nil || rules.GetSpec().GetCampaignId() != string(campaign) {
		return nil
	}
	return rules
}

// specFor is the decoded spec of a campaign. One that cannot be read is no error: it must not stop
// what concerns other campaigns in the same transaction. Specs are kept by version; the version was read in this
// transaction, so a kept one is never out of date.
func (s *Store) specFor(ctx context.Context, t tx, campaign ids.CampaignID, version int64) (spec, error) {
	if kept, ok := s.specs.get(campaign, version); ok {
		return kept, nil
	}
	var raw []byte
	if err := t.QueryRow(ctx, sql("batch_rules_spec"), campaign).Scan(&version, &raw); err != nil {
		return spec{}, err
	}
	full := readRules(campaign, raw)
	if full == nil { // not kept: whoever overwrites them is believed at once
		return spec{version: version, unreadable: true, maxQuantity: math.MaxInt32}, nil
	}
	read := specOf(full)
	s.specs.put(campaign, version, read)
	return read, nil
}
