package shard

import (
	"fmt"

	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/internal/ids"
	cellquotav1 "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// stateNames are the stored words of a campaign's state. OPEN is never stored, and a DRAFT is not
// sent to cells.
var stateNames = map[cellquotav1.CampaignState]string{
	cellquotav1.CampaignState_CAMPAIGN_STATE_PUBLISHING: "PUBLISHING",
	cellquotav1.CampaignState_CAMPAIGN_STATE_PUBLISHED:  "PUBLISHED",
	cellquotav1.CampaignState_CAMPAIGN_STATE_PAUSED:     "PAUSED",
	cellquotav1.CampaignState_CAMPAIGN_STATE_CLOSED:     "CLOSED",
	cellquotav1.CampaignState_CAMPAIGN_STATE_SETTLED:    "SETTLED",
}

var scopeNames = map[cellquotav1.PurchaseScope]string{
	cellquotav1.PurchaseScope_PURCHASE_SCOPE_SKU:      "SKU",
	cellquotav1.PurchaseScope_PURCHASE_SCOPE_CAMPAIGN: "CAMPAIGN",
}

// checkRules refuses what the tables cannot hold or this program cannot carry out.
func checkRules(rules *cellquotav1.CampaignRules) error {
	spec := rules.GetSpec()
	if _, err := ids.ParseCampaignID(spec.GetCampaignId()); err != nil {
		return fmt.Errorf("%w: spec.%w", ErrInvalid, err)
	}
	switch {
	case rules.GetVersion() < 1:
		return fmt.Errorf("%w: version must be at least 1", ErrInvalid)
	case stateNames[rules.GetState()] == "":
		return fmt.Errorf("%w: state must be a stored state of a published campaign", ErrInvalid)
	case scopeNames[spec.GetPurchaseScope()] == "":
		return fmt.Errorf("%w: spec.purchase_scope must be SKU or CAMPAIGN", ErrInvalid)
	case !spec.GetOpenAt().IsValid() || !spec.GetCloseAt().IsValid() || !spec.GetOpenAt().AsTime().Before(spec.GetCloseAt().AsTime()):
		return fmt.Errorf("%w: spec.open_at must be before spec.close_at", ErrInvalid)
	case spec.GetReservationTtl().AsDuration() <= 0:
		return fmt.Errorf("%w: spec.reservation_ttl must be positive", ErrInvalid)
	case len(spec.GetSkus()) == 0:
		return fmt.Errorf("%w: spec.skus must not be empty", ErrInvalid)
	}
	for i, sku := range spec.GetSkus() {
		if err := checkSKU(sku); err != nil {
			return fmt.Errorf("spec.skus[%d]: %w", i, err)
		}
	}
	return checkBuckets(rules.GetBuckets())
}

func checkSKU(sku *cellquotav1.SkuSpec) error {
	if _, err := ids.ParseSKUID(sku.GetSkuId()); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if _, err := reservation.ParseMoney(sku.GetPrice().GetAmount(), sku.GetPrice().GetCurrency()); err != nil {
		return fmt.Errorf("%w: price: %w", ErrInvalid, err)
	}
	if modeNames[sku.GetInventoryMode()] == "" {
		return fmt.Errorf("%w: inventory_mode %d: this program knows COUNTER and TOKEN", ErrUnsupported, sku.GetInventoryMode())
	}
	return nil
}

// checkBuckets requires ranges within 0…4095, ascending and apart, and each domain once.
func checkBuckets(all []*cellquotav1.DomainBuckets) error {
	seen := map[string]bool{}
	for _, d := range all {
		if seen[d.GetDomain()] {
			return fmt.Errorf("%w: buckets: domain %q is named twice", ErrInvalid, d.GetDomain())
		}
		seen[d.GetDomain()] = true
		last := int32(-1)
		for _, r := range d.GetRanges() {
			if r.GetBucketFrom() <= last || r.GetBucketTo() < r.GetBucketFrom() || r.GetBucketTo() >= ids.Buckets {
				return fmt.Errorf("%w: buckets of domain %q must be ascending, apart and within 0 to %d", ErrInvalid, d.GetDomain(), ids.Buckets-1)
			}
			last = r.GetBucketTo()
		}
	}
	return nil
}
