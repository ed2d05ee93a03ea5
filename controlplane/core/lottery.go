package core

import (
	"fmt"
	"slices"
	"time"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/internal/ids"
)

// Bounds of a lottery's campaign.
const (
	// MaxLotterySKUs bounds what one campaign draws: each draw's outcome is part of its record.
	MaxLotterySKUs = 100
	maxTiers       = 32
	// DefaultTier is everybody whose tier is not named.
	DefaultTier = "default"
)

// LotteryRules say when customers enter and how many tickets each has.
type LotteryRules struct {
	EntryOpenAt, EntryCloseAt time.Time // [open, close); close not after the campaign's open_at
	// Tiers are tickets, 1 to allocator.MaxTickets, by the token's claim "tier".
	Tiers map[string]int32
}

// Tickets gives what a tier has in the drum.
func (r LotteryRules) Tickets(tier string) int {
	if n, named := r.Tiers[tier]; named {
		return int(n)
	}
	if n, named := r.Tiers[DefaultTier]; named {
		return int(n)
	}
	return 1
}

// LotteryDraw is the outcome of one SKU's draw.
type LotteryDraw struct {
	SKU      ids.SKUID
	Entrants int64
	// EntrantsSHA256 of the list, and EvidenceSHA256 of the archive's object Evidence; hex.
	EntrantsSHA256, Evidence, EvidenceSHA256 string
	EvidenceSize                             int64 // bytes
	Beacon                                   string
	Units, Winners                           int32
	// Ungranted are winners whose cell could not be granted units: they stay in the reserve.
	Ungranted int32
	DrawnAt   time.Time
	// LostCells were written off: nobody can read their entries.
	LostCells []ids.CellID
}

// Sealed gives a campaign with a lottery its seed, once: it is published by its SHA-256 before the first
// entry can be made. read fills with random bytes.
func (c Campaign) Sealed(read func([]byte) (int, error)) (Campaign, error) {
	if c.Spec.Mode != ModeLottery || len(c.LotterySeed) > 0 {
		return c, nil
	}
	seed := make([]byte, allocator.SeedBytes)
	if _, err := read(seed); err != nil {
		return c, fmt.Errorf("a lottery's seed: %w", err)
	}
	next := c.clone()
	next.LotterySeed = seed
	return next, nil
}

// Draw finds a SKU's draw.
func (c Campaign) Draw(sku ids.SKUID) (LotteryDraw, bool) {
	i := slices.IndexFunc(c.Draws, func(d LotteryDraw) bool { return d.SKU == sku })
	if i < 0 {
		return LotteryDraw{}, false
	}
	return c.Draws[i], true
}

// Drawn gives the campaign with one more SKU drawn. The version does not grow: cells know nothing of it.
func (c Campaign) Drawn(d LotteryDraw) Campaign {
	if _, drawn := c.Draw(d.SKU); drawn {
		return c
	}
	next := c.clone()
	next.Draws = append(next.Draws, d)
	return next
}

// DrawnBy gives the campaign with the operation that draws it; another one is refused, whoever comes
// second. ErrCampaignState.
func (c Campaign) DrawnBy(operation string) (Campaign, error) {
	if c.DrawOperation != "" && c.DrawOperation != operation {
		return c, numbered(ErrCampaignState, "campaign_id", c.Spec.ID, "operation_id", c.DrawOperation, "wanted", "a draw; that operation draws it, or drew it")
	}
	next := c.clone()
	next.DrawOperation = operation
	return next, nil
}

// FullyDrawn tells whether every SKU is.
func (c Campaign) FullyDrawn() bool { return len(c.Draws) == len(c.Spec.SKUs) }

// MayDraw refuses a draw while entry is open, and of a campaign that does not draw or is not on sale
// (before its window is well). ErrCampaignState.
func (c Campaign) MayDraw(now time.Time) error {
	switch state := c.ReadState(now); {
	case c.Spec.Mode != ModeLottery:
		return numbered(ErrCampaignState, "campaign_id", c.Spec.ID, "mode", c.Spec.Mode, "wanted", "mode LOTTERY")
	case state != CampaignPublished && state != CampaignOpen && state != CampaignPaused:
		return numbered(ErrCampaignState, "campaign_id", c.Spec.ID, "state", state, "wanted", "draw")
	case now.Before(c.Spec.Lottery.EntryCloseAt):
		return numbered(ErrCampaignState, "campaign_id", c.Spec.ID, "entry_close_at", c.Spec.Lottery.EntryCloseAt.Format(time.RFC3339), "wanted", "draw after entry_close_at")
	}
	return nil
}

func (s CampaignSpec) checkLottery(f *faults) {
	if s.Mode != ModeLottery {
		f.add(s.Lottery != nil, "lottery", "belongs to mode LOTTERY")
		return
	}
	if s.Lottery == nil {
		f.add(true, "lottery", "is required with mode LOTTERY")
		return
	}
	l := s.Lottery
	f.add(l.EntryOpenAt.IsZero(), "lottery.entry_open_at", "is required: an instant with its offset")
	f.add(l.EntryCloseAt.IsZero(), "lottery.entry_close_at", "is required: an instant with its offset")
	f.add(!l.EntryOpenAt.IsZero() && !l.EntryCloseAt.IsZero() && !l.EntryCloseAt.After(l.EntryOpenAt), "lottery.entry_close_at", "must be after entry_open_at")
	f.add(!s.OpenAt.IsZero() && l.EntryCloseAt.After(s.OpenAt), "lottery.entry_close_at", "must not be after open_at")
	f.add(len(l.Tiers) > maxTiers, "lottery.tiers", "must be at most 32 tiers")
	for tier, n := range l.Tiers {
		f.add(n < 1 || n > allocator.MaxTickets, "lottery.tiers."+tier, "must be from 1 to 100")
	}
	f.add(s.MaxQuantity != 1, "max_quantity_per_order", "must be 1 with mode LOTTERY: a winner buys one unit")
	f.add(s.Permits.ClaimFrom.Before(l.EntryCloseAt), "permits.claim_from", "must not be before lottery.entry_close_at")
	f.add(s.Routing == RoutingHomeRegion, "routing", "must be USER with mode LOTTERY")
	f.add(len(s.SKUs) > MaxLotterySKUs, "skus", "must be at most 100 SKUs with mode LOTTERY")
	for i, sku := range s.SKUs {
		path := fmt.Sprintf("skus[%d]", i)
		f.add(sku.SaleLimit.Int64() > allocator.MaxDrawn, path+".sale_limit", "must not be above 1000000 with mode LOTTERY")
		f.add(!sku.Reserve.IsZero() && sku.Reserve != sku.SaleLimit, path+".reserve", "belongs to mode DIRECT: a lottery keeps every unit in the reserve until it is drawn")
		f.add(sku.Split.Policy != allocator.Equal, path+".split", "belongs to mode DIRECT: a lottery grants each cell what its customers won")
		f.add(sku.TopUp.Policy == AutoAuto, path+".top_up.policy", "must be MANUAL with mode LOTTERY")
		f.add(sku.Rebalance == AutoAuto, path+".rebalance", "must be MANUAL with mode LOTTERY")
	}
}
