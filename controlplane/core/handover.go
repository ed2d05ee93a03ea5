package core

import (
	"slices"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/internal/ids"
)

// HandoverStep is the step of a shard's schema from which buckets can be handed
// over: its functions close, export, import and open them and know whose handover it
// is, and a program that knows it answers for requests that were carried.
const HandoverStep = 6

// Steps of a handover, in their order. Until StepOrder is done nothing has happened;
// what a shard closed is carried to its end.
const (
	StepOrder = "order" // both shards answer, the taker serves the campaign: the route says MOVING
	StepClose = "close" // the giver's shard closed the buckets
	StepCarry = "carry" // the taker's has every place and every answered request of theirs
	StepOpen  = "open"  // the taker's shard opened the buckets
	StepTurn  = "turn"  // the route says MOVED
)

// Handover is what an operation of that kind hands over: those buckets of [First,
// Last] that From owns when it is ordered.
type Handover struct {
	Domain      string
	From, To    ids.CellID
	First, Last uint16
	// ExpectedVersion is the route's that the caller saw; 0: any.
	ExpectedVersion int64
	// RouteVersion is that of its move in the route; 0: it is not ordered yet.
	RouteVersion int64
	// Closed are the parts that the giver's shard closed, as it said: under its name,
	// ascending. Empty before.
	Closed []allocator.Range
}

// Ordered says that the route has the move of a version.
func (h Handover) Ordered(version int64) Handover { h.RouteVersion = version; return h }

// ClosedAs keeps what the giver's shard closed.
func (h Handover) ClosedAs(parts []allocator.Range) Handover {
	h.Closed = slices.Clone(parts)
	return h
}

// MovedBuckets gives the route version under which the shard of a cell closed or opened
// buckets, as a handover's finished steps tell; 0: it did not, or nobody heard yet.
func (o Operation) MovedBuckets(cell ids.CellID) int64 {
	closed := o.Handover.From == cell && o.DoneStep(StepClose)
	opened := o.Handover.To == cell && o.DoneStep(StepOpen)
	if o.Kind == OperationHandOver && (closed || opened) {
		return o.Handover.RouteVersion
	}
	return 0
}

// MayGive refuses a cell whose buckets cannot be handed over: without its shard's
// word on who bought there nobody may sell to them. One that is RESTORING may lack paid
// orders that its recovery makes again. ErrCellState.
func (c Cell) MayGive() error {
	switch c.State {
	case CellRetired, CellRegressed, CellRestoring, CellProvisioned:
		return c.refuses("give buckets")
	default:
		return nil
	}
}

// MayTakeBuckets refuses a cell that does not sell: read is its state with SUSPECT
// included. ErrCellState.
func (c Cell) MayTakeBuckets(read CellState) error {
	if read == CellActive {
		return nil
	}
	c.State = read
	return c.refuses("take buckets")
}

// MayHandOver refuses a campaign whose buckets are not dealt yet, or whose account is
// taken, and a lottery's: entries and the units of those who won stay with the cell that
// took them. ErrCampaignState.
func (c Campaign) MayHandOver() error {
	if c.Spec.Mode == ModeLottery {
		return numbered(ErrCampaignState, "campaign_id", c.Spec.ID, "mode", c.Spec.Mode, "wanted", "handover: a lottery's entries stay with the cell that took them")
	}
	switch c.State {
	case CampaignPublished, CampaignPaused, CampaignClosed:
		return nil
	default:
		return numbered(ErrCampaignState, "campaign_id", c.Spec.ID, "state", c.State, "wanted", "handover")
	}
}

// TakesPart refuses a cell that is none of the campaign's: it has no rules to sell
// by. ErrNotTakingPart.
func (c Campaign) TakesPart(cell ids.CellID) error {
	if slices.Contains(c.Spec.Cells, cell) {
		return nil
	}
	return numbered(ErrNotTakingPart, "campaign_id", c.Spec.ID, "cell_id", cell)
}
