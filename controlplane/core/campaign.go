package core

import (
	"slices"
	"time"

	"github.com/cellquota/cellquota/internal/ids"
)

// Campaign is the control plane's record of one campaign.
type Campaign struct {
	Spec  CampaignSpec
	State CampaignState // stored state; OPEN is never stored
	// Version grows by 1 with every change, from 1; cells and edges acknowledge it.
	Version int64
	Owner   string // who created it
	// PublishedAt is zero before PUBLISHED.
	PublishedAt time.Time
	// OperationID publishes it, while PUBLISHING.
	OperationID string
	// BookedSKUs have their book already, while PUBLISHING.
	BookedSKUs []ids.SKUID
	PausedSKUs []ids.SKUID
	FinalSKUs  []ids.SKUID
	// CreatedBy is the operation that stored the draft.
	CreatedBy string
	// CancelledBy is the operation that cancelled it, or empty.
	CancelledBy string
	// ClosedAt is when it was first stored CLOSED; zero before.
	ClosedAt time.Time
	// SettledAt is zero before SETTLED.
	SettledAt time.Time
	// LastOperation changed it last, with LastParameters (a Digest): a repeat is
	// known by them (Repeats). Empty where no operation of a caller did.
	LastOperation, LastParameters string
	// Archive names the objects that hold its final report, from when its account was
	// taken, and its journal, once SETTLED.
	Archive []ArchiveObject
	// LotterySeed is 32 random bytes from the first publish on, with mode LOTTERY; secret until
	// the first draw. Draws are the SKUs drawn.
	LotterySeed []byte
	Draws       []LotteryDraw
	// DrawOperation draws it, or drew it; another is refused. Empty before.
	DrawOperation string
	// ModRevision is etcd's; 0: not stored.
	ModRevision int64
}

// CampaignEvent is what can happen to a campaign.
type CampaignEvent uint8

// The events.
const (
	EventPublish   CampaignEvent = iota + 1 // an operator publishes the draft
	EventGiveUp                             // a SKU did not fit: back to draft
	EventPublished                          // every cell and edge has it
	EventPause
	EventResume
	EventClose // by hand, or close_at has passed
	EventSettle
)

var campaignEventNames = []string{"", "publish", "give up", "published", "pause", "resume", "close", "settle"}

// CampaignEvents lists every event.
func CampaignEvents() []CampaignEvent { return all[CampaignEvent](campaignEventNames) }

// String is the event in words.
func (e CampaignEvent) String() string { return enumText("CampaignEvent", campaignEventNames, e) }

// campaignTable: rows are stored states, columns events. An absent cell refuses
// with ErrCampaignState; a cell with the row's own state is an idempotent repeat.
//
//	            publish     give up  published  pause   resume     close   settle
//	DRAFT       PUBLISHING  DRAFT    -          -       -          -       -
//	PUBLISHING  PUBLISHING  DRAFT    PUBLISHED  -       -          -       -
//	PUBLISHED   -           -        PUBLISHED  PAUSED  PUBLISHED  CLOSED  -
//	PAUSED      -           -        -          PAUSED  PUBLISHED  CLOSED  -
//	CLOSED      -           -        -          -       -          CLOSED  SETTLED
//	SETTLED     -           -        -          -       -          -       SETTLED
var campaignTable = map[CampaignState]map[CampaignEvent]CampaignState{
	CampaignDraft:      {EventPublish: CampaignPublishing, EventGiveUp: CampaignDraft},
	CampaignPublishing: {EventPublish: CampaignPublishing, EventGiveUp: CampaignDraft, EventPublished: CampaignPublished},
	CampaignPublished:  {EventPublished: CampaignPublished, EventPause: CampaignPaused, EventResume: CampaignPublished, EventClose: CampaignClosed},
	CampaignPaused:     {EventPause: CampaignPaused, EventResume: CampaignPublished, EventClose: CampaignClosed},
	CampaignClosed:     {EventClose: CampaignClosed, EventSettle: CampaignSettled},
	CampaignSettled:    {EventSettle: CampaignSettled},
}

// Step gives the campaign after an event, with the next version; changed is
// false for a repeat. ErrCampaignState where the state refuses.
func (c Campaign) Step(e CampaignEvent) (next Campaign, changed bool, err error) {
	to, ok := campaignTable[c.State][e]
	if !ok {
		return Campaign{}, false, numbered(ErrCampaignState, "campaign_id", c.Spec.ID, "state", c.State, "wanted", e)
	}
	if to == c.State {
		return c, false, nil
	}
	next = c.clone()
	next.State = to
	next.Version++
	if to == CampaignDraft {
		next.OperationID, next.BookedSKUs = "", nil
	}
	return next, true, nil
}

// Booked gives the campaign with one more SKU booked. The version does not grow:
// cells are told of a campaign when all its books exist.
func (c Campaign) Booked(sku ids.SKUID) Campaign {
	if slices.Contains(c.BookedSKUs, sku) {
		return c
	}
	next := c.clone()
	next.BookedSKUs = append(next.BookedSKUs, sku)
	return next
}

// Unbooked gives the campaign without one SKU's book, when a publish is given up.
func (c Campaign) Unbooked(sku ids.SKUID) Campaign {
	next := c.clone()
	next.BookedSKUs = slices.DeleteFunc(next.BookedSKUs, func(s ids.SKUID) bool { return s == sku })
	return next
}

// FullyBooked tells whether every SKU has its book.
func (c Campaign) FullyBooked() bool { return len(c.BookedSKUs) == len(c.Spec.SKUs) }

// ReadState is the state as people read it: OPEN within the window, CLOSED after it.
func (c Campaign) ReadState(now time.Time) CampaignState {
	switch {
	case c.State != CampaignPublished:
		return c.State
	case !now.Before(c.Spec.CloseAt):
		return CampaignClosed
	case !now.Before(c.Spec.OpenAt):
		return CampaignOpen
	}
	return CampaignPublished
}

// EndedAt is when the sale ended: at close_at, or when it was closed before that.
func (c Campaign) EndedAt() time.Time {
	if !c.ClosedAt.IsZero() && c.ClosedAt.Before(c.Spec.CloseAt) {
		return c.ClosedAt
	}
	return c.Spec.CloseAt
}

// OnSale tells whether units may be moved for the campaign by hand: it is, or is
// about to be, on sale, paused or not. What was asked for before its close is
// still carried out after it.
func (c Campaign) OnSale(now time.Time) bool {
	switch c.ReadState(now) {
	case CampaignPublished, CampaignOpen, CampaignPaused:
		return true
	default:
		return false
	}
}

// Refuses is ErrCampaignState with the facts.
func (c Campaign) Refuses(now time.Time) error {
	return numbered(ErrCampaignState, "campaign_id", c.Spec.ID, "state", c.ReadState(now))
}

// Key gives the book key of one of its SKUs.
func (c Campaign) Key(sku ids.SKUID) BookKey { return BookKey{Campaign: c.Spec.ID, SKU: sku} }

// Check verifies a record that was read or is to be stored; the window is not
// held against a clock here. ErrBroken.
func (c Campaign) Check() error {
	if v := c.Spec.Check(); len(v) > 0 {
		return broken("campaign %q: %s: %s", c.Spec.ID, v[0].Field, v[0].Rule)
	}
	if !c.State.Valid() || c.State == CampaignOpen || c.Version < 1 {
		return broken("campaign %s: state %s, version %d", c.Spec.ID, c.State, c.Version)
	}
	return nil
}

func (c Campaign) clone() Campaign {
	c.BookedSKUs = slices.Clone(c.BookedSKUs)
	c.PausedSKUs = slices.Clone(c.PausedSKUs)
	c.FinalSKUs = slices.Clone(c.FinalSKUs)
	c.Archive = slices.Clone(c.Archive)
	c.Draws = slices.Clone(c.Draws)
	return c
}
