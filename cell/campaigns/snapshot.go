package campaigns

import (
	"time"

	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/ids"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Campaign is one campaign's rules, ready to be asked.
type Campaign struct {
	ID      ids.CampaignID
	Version int64
	State   pb.CampaignState
	Spec    *pb.CampaignSpec
	OpenAt  time.Time
	CloseAt time.Time
	// PerSKU: "one order per user" counts per SKU; else per campaign.
	PerSKU bool
	// Direct: there is no mirror and no log; the shard alone sells (admission: DATABASE).
	Direct bool
	// Baseline is how many orders per second the shard alone may make of each of its mirrors while Redis
	// is away; 0: none. The campaign's gate.baseline_rps, shared among its mirrors.
	Baseline float64
	// Cancelled: nothing is admitted any more, unpaid orders are closed and paid ones refunded.
	Cancelled bool
	Holds     reservation.Holds // bounds on unpaid orders
	Buckets   []*pb.DomainBuckets
	skus      map[ids.SKUID]SKU
}

// SKU is one SKU's rules.
type SKU struct {
	ID     ids.SKUID
	Price  *pb.Money
	Paused bool // by an operator
	Final  bool // FINAL_SOLD_OUT, by the control plane
}

// SKU gives one SKU and whether the campaign sells it.
func (c *Campaign) SKU(id ids.SKUID) (SKU, bool) {
	s, ok := c.skus[id]
	return s, ok
}

// SKUs lists the SKUs in the order of the campaign's file.
func (c *Campaign) SKUs() []SKU {
	out := make([]SKU, 0, len(c.Spec.GetSkus()))
	for _, s := range c.Spec.GetSkus() {
		out = append(out, c.skus[ids.SKUID(s.GetSkuId())])
	}
	return out
}

// Sells tells whether the stored state lets this cell admit at all; the window is judged by Redis TIME.
func (c *Campaign) Sells() bool {
	return c.State == pb.CampaignState_CAMPAIGN_STATE_PUBLISHED && !c.Cancelled
}

// Snapshot is every campaign at one moment. Never changed after it was made.
type Snapshot struct {
	campaigns map[ids.CampaignID]*Campaign
	order     []ids.CampaignID
	faults    []string
	cell      shard.Switch
}

// Paused tells whether an operator paused this cell as a whole, and why.
func (s *Snapshot) Paused() (why string, paused bool) { return s.cell.Reason, s.cell.Paused }

// Campaign gives one campaign and whether the cell has its rules.
func (s *Snapshot) Campaign(id ids.CampaignID) (*Campaign, bool) {
	c, ok := s.campaigns[id]
	return c, ok
}

// All lists the campaigns in the shard's order.
func (s *Snapshot) All() []*Campaign {
	out := make([]*Campaign, 0, len(s.order))
	for _, id := range s.order {
		out = append(out, s.campaigns[id])
	}
	return out
}

// Cancelled lists the campaigns that were cancelled.
func (s *Snapshot) Cancelled() []ids.CampaignID {
	var out []ids.CampaignID
	for _, id := range s.order {
		if s.campaigns[id].Cancelled {
			out = append(out, id)
		}
	}
	return out
}

// Faults names rules that could not be read.
func (s *Snapshot) Faults() []string { return s.faults }

// newSnapshot reads rows; unchanged campaigns are taken from the last snapshot.
func newSnapshot(rows []shard.CampaignRow, last *Snapshot) (s *Snapshot, changed bool) {
	s = &Snapshot{campaigns: make(map[ids.CampaignID]*Campaign, len(rows))}
	for _, row := range rows {
		if old, ok := last.Campaign(row.ID); ok && old.Version == row.Version {
			s.campaigns[row.ID] = old
		} else if c := readCampaign(row); c != nil {
			s.campaigns[row.ID] = c
			changed = true
		} else {
			s.faults = append(s.faults, "campaign "+string(row.ID)+": its rules in the shard cannot be read")
			continue
		}
		s.order = append(s.order, row.ID)
	}
	return s, changed || len(s.order) != len(last.order)
}

func readCampaign(row shard.CampaignRow) *Campaign {
	rules := row.Rules
	spec := rules.GetSpec()
	if spec.GetCampaignId() != string(row.ID) || !spec.GetOpenAt().IsValid() || !spec.GetCloseAt().IsValid() || len(spec.GetSkus()) == 0 {
		return nil
	}
	c := &Campaign{
		ID: row.ID, Version: row.Version, State: rules.GetState(), Spec: spec, OpenAt: spec.GetOpenAt().AsTime(), CloseAt: spec.GetCloseAt().AsTime(),
		PerSKU: spec.GetPurchaseScope() != pb.PurchaseScope_PURCHASE_SCOPE_CAMPAIGN, Cancelled: rules.GetCancelled(), Buckets: rules.GetBuckets(),
		Holds: reservation.Holds{PerUser: spec.GetHolds().GetMaxUnpaidPerUser(), PerDevice: spec.GetHolds().GetMaxUnpaidPerDevice()}, skus: map[ids.SKUID]SKU{},
	}
	c.Direct = spec.GetAdmission() == pb.AdmissionMode_ADMISSION_MODE_DATABASE
	c.Baseline = baseline(c)
	for _, s := range spec.GetSkus() {
		c.skus[ids.SKUID(s.GetSkuId())] = SKU{ID: ids.SKUID(s.GetSkuId()), Price: s.GetPrice()}
	}
	c.flag(rules.GetPausedSkus(), func(s *SKU) { s.Paused = true })
	c.flag(rules.GetFinalSkus(), func(s *SKU) { s.Final = true })
	return c
}

// baseline shares the campaign's rate among its mirrors: together they keep within it.
func baseline(c *Campaign) float64 {
	rate := float64(max(c.Spec.GetGate().GetBaselineRps(), 0))
	switch {
	case c.Direct:
		return 0
	case c.PerSKU:
		return rate / float64(len(c.Spec.GetSkus()))
	default:
		return rate
	}
}

func (c *Campaign) flag(skus []string, set func(*SKU)) {
	for _, id := range skus {
		if s, ok := c.skus[ids.SKUID(id)]; ok {
			set(&s)
			c.skus[ids.SKUID(id)] = s
		}
	}
}
