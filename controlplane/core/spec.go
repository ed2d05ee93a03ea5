package core

import (
	"reflect"
	"time"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/internal/ids"
)

// CampaignSpec is campaign.yaml with its defaults filled in: what is sold, when,
// under which rules. A value that nobody changes after the draft was stored.
type CampaignSpec struct {
	ID          ids.CampaignID
	DisplayJSON string // a JSON object's text, opaque; at most 4 KiB
	OpenAt      time.Time
	CloseAt     time.Time // exclusive
	Mode        Mode
	Admission   Admission
	Scope       Scope
	MaxQuantity int32         // per order, 1 to 1,000
	HoldFor     time.Duration // reservation_ttl, at least 1 s
	Ack         Ack
	Refund      Refund
	OnLeaseLoss LeaseLoss
	Reclaim     Reclaim
	Routing     Routing
	Permits     PermitRules
	Eligibility Eligibility
	Holds       Holds
	Gate        Gate
	Limits      *Limits       // nil: none but the edge's own ceilings
	Lottery     *LotteryRules // set with mode LOTTERY alone
	SKUs        []SKUSpec
	Cells       []ids.CellID
}

// SKUSpec is what is sold of one SKU.
type SKUSpec struct {
	ID            ids.SKUID
	PhysicalStock quantity.Quantity // at least SaleLimit
	SaleLimit     quantity.Quantity // at least 1
	Inventory     Inventory
	Price         Money
	Reserve       quantity.Quantity
	Split         SplitRules
	TopUp         TopUpRules
	Rebalance     Auto
}

// Money is a decimal amount and its ISO 4217 currency.
type Money struct {
	Amount   string // "4999.00": at most 14 digits before and 4 after the point
	Currency string
}

// SplitRules say how SaleLimit − Reserve is cut.
type SplitRules struct {
	Policy  allocator.Policy
	Weights map[ids.CellID]uint32            // WEIGHTED
	Units   map[ids.CellID]quantity.Quantity // EXPLICIT
}

// TopUpRules say when and how much of the reserve a cell is given by the planner.
type TopUpRules struct {
	Policy Auto
	// LowWater of the first grant and Tranche of the present reserve, in
	// thousandths.
	LowWaterPermille int32
	TranchePermille  int32
}

// PermitRules say when permits may be claimed and how long they live.
type PermitRules struct {
	ClaimFrom time.Time
	TTL       time.Duration
}

// Eligibility says who may take part.
type Eligibility struct {
	Claims        []ClaimRule
	DenyRiskTiers []string
}

// ClaimRule accepts a token's claim with one of the values.
type ClaimRule struct {
	Claim  string
	Values []string
}

// Holds bound unpaid orders; 0: no bound.
type Holds struct {
	MaxUnpaidPerUser   int32
	MaxUnpaidPerDevice int32
	PaymentTTLByRisk   map[string]time.Duration
}

// Gate bounds outstanding admissions.
type Gate struct {
	MaxWait        time.Duration
	MarginPermille int32
	BaselineRPS    int32
}

// Limits are the edge's rate limits of a campaign; nil: none of that kind.
type Limits struct {
	User    *Rate
	Device  *Rate
	Network *Rate
	Claims  map[string]Rate
}

// Rate is a token bucket.
type Rate struct {
	Milli int64 // thousandths of a request per second, at least 1
	Burst int32 // at least 1
}

// Equal compares two specs; times by instant.
func (s CampaignSpec) Equal(other CampaignSpec) bool {
	return reflect.DeepEqual(s.normal(), other.normal())
}

// normal gives times in UTC without monotonic parts and no empty collections, so
// that equal specs are equal values.
func (s CampaignSpec) normal() CampaignSpec {
	s.OpenAt, s.CloseAt = s.OpenAt.UTC().Round(0), s.CloseAt.UTC().Round(0)
	s.Permits.ClaimFrom = s.Permits.ClaimFrom.UTC().Round(0)
	if s.Lottery != nil {
		l := *s.Lottery
		l.EntryOpenAt, l.EntryCloseAt = l.EntryOpenAt.UTC().Round(0), l.EntryCloseAt.UTC().Round(0)
		s.Lottery = &l
	}
	return s
}
