package route

import (
	"time"

	"github.com/cellquota/cellquota/internal/ids"
)

// Stage is where a campaign stands as far as an edge is concerned.
type Stage uint8

// The stages.
const (
	// Hidden: not published, or being published; to a customer it does not exist.
	Hidden Stage = iota
	// Published: sells within its window.
	Published
	// Paused by an operator: sells nothing until resumed.
	Paused
	// Closed: past its end, or closed by hand; only what was bought goes on.
	Closed
)

// Campaign is what an edge knows of one campaign. It is immutable.
type Campaign struct {
	ID      ids.CampaignID
	Version int64 // of the rules
	Stage   Stage

	OpenAt    time.Time     // first instant at which a request is admitted
	CloseAt   time.Time     // first instant at which none is any more
	ClaimFrom time.Time     // first instant at which a permit may be claimed
	PermitTTL time.Duration // life of a permit, from max(claim, OpenAt)

	Lottery     *Lottery  // nil: first come, first served; else only drawn winners are given permits
	HomeRegion  bool      // the domain is the token's home region
	PublishedAt time.Time // home regions changed later than this do not count
	MaxQuantity int32     // units in one request
	Margin      int32     // tenths of a percent let through beyond what a THROTTLED cell has left

	Display []byte // JSON object for GET, opaque; nil: none
	Rules   Rules

	SKUs  []SKU // in the order of the campaign
	bySKU map[ids.SKUID]int

	domains map[string]*Domain
	cells   []ids.CellID
}

// Lottery says when customers enter, and what was promised of the draw before they did.
type Lottery struct {
	EntryOpenAt, EntryCloseAt time.Time
	Commitment                string // SHA-256 of the seed, hex
}

// SKU is one SKU of a campaign.
type SKU struct {
	ID     ids.SKUID
	Paused bool // by an operator
	Final  bool // declared FINAL_SOLD_OUT by the control plane
}

// Rules are what a campaign asks of a customer and how often he may ask.
type Rules struct {
	Claims   []ClaimRule // all must hold
	DenyRisk []string    // risk tiers that are refused

	User    Rate
	Device  Rate
	Network Rate
	PerName map[string]Rate // by claim name
}

// ClaimRule holds if the token's claim has one of the values, byte for byte.
type ClaimRule struct {
	Name   string
	Values []string
}

// Rate is a token bucket. The zero Rate is no limit.
type Rate struct {
	PerSecond float64
	Burst     int
}

// Limited reports whether r limits at all.
func (r Rate) Limited() bool { return r.PerSecond > 0 }

// Domain says which cell owns each bucket of one traffic domain.
type Domain struct {
	owners [ids.Buckets]uint16 // index into cells
	cells  []ids.CellID
	moves  []Move                   // oldest first
	moving [ids.Buckets / 64]uint64 // a bit for each bucket that is being handed over
}

// SKU returns the SKU of that id.
func (c *Campaign) SKU(id ids.SKUID) (SKU, bool) {
	i, ok := c.bySKU[id]
	if !ok {
		return SKU{}, false
	}
	return c.SKUs[i], true
}

// Cells are the cells that own buckets of the campaign, each once, in order of their ids.
func (c *Campaign) Cells() []ids.CellID { return c.cells }

// HasDomain reports whether the campaign has such a traffic domain.
func (c *Campaign) HasDomain(name string) bool {
	_, ok := c.domains[name]
	return ok
}

// Home is the one cell that may sell to the user; of a bucket that is Moving, the cell that gives it. It
// is false when the campaign has no such domain.
func (c *Campaign) Home(domain string, user ids.UserID) (ids.CellID, bool) {
	d, ok := c.domains[domain]
	if !ok {
		return "", false
	}
	return d.cells[d.owners[ids.Bucket(user)]], true
}
