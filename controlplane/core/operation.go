package core

import (
	"slices"
	"strings"
	"time"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/internal/ids"
)

// Kinds of operations.
const (
	OperationFence   = "fence-cell"
	OperationReclaim = "reclaim-cell"
	OperationRestore = "restore-cell"
	// OperationWriteOff gives up a cell whose shard is gone for good.
	OperationWriteOff = "write-off-cell"
	OperationDrain    = "drain-cell"
	OperationRetire   = "retire-cell"
	// OperationRebuild has a cell make the mirrors of a campaign anew.
	OperationRebuild = "rebuild-mirror"
	// OperationRecover takes the books from the shards after etcd lost its past.
	OperationRecover   = "recover-store"
	OperationPublish   = "publish-campaign"
	OperationDelete    = "delete-campaign"
	OperationCancel    = "cancel-campaign"
	OperationSetLimit  = "set-sale-limit"
	OperationTransfer  = "transfer-units"
	OperationRebalance = "rebalance"
	// OperationHandOver gives buckets of a campaign to another cell.
	OperationHandOver = "handover"
	// OperationReverse adds the opposite of a ledger entry that a finding names.
	OperationReverse = "reverse-entry"
	// OperationDraw draws a lottery.
	OperationDraw = "draw-lottery"
)

// StepReverse is the one step of a reversal.
const StepReverse = "reverse"

// Operation is a long operation. It lives in etcd; any replica shows it and the
// leader drives it. Its state moves by the verbs below only.
type Operation struct {
	ID      string // minted by the caller
	Kind    string
	Subject string // a cell or campaign id
	State   OperationState
	Step    string // present step
	Detail  string // why it waits or failed
	Steps   []OperationStep
	Actor   string
	Reason  string
	// StartedAt and EndedAt by the control plane's clock; EndedAt is zero while it runs.
	StartedAt, EndedAt time.Time
	// Parameters is a digest of what the caller asked for.
	Parameters string
	// Reclaim and TopUp continue a fence; InstanceGroup is a restore's; FenceVersion
	// is the one that this operation installs.
	Reclaim, TopUp bool
	InstanceGroup  string
	FenceVersion   int64
	// SaleLimit is what a set-sale-limit wants to reach.
	SaleLimit quantity.Quantity
	// Beacon is the public value of a draw.
	Beacon string
	// Drawing is the SKU of a draw whose evidence is in the archive, as DrawingEvidence, and whose
	// winners are being told: from then on it says who they are. Empty: none.
	Drawing         ids.SKUID
	DrawingEvidence ArchiveObject
	// Moves are a transfer's one move, or the plan of a rebalance, in their order.
	Moves []RebalanceMove
	// Handover is what an operation of that kind moves.
	Handover Handover
	// NeedsApproval: a second person must approve before the first step (MayStep).
	NeedsApproval bool
	// Limits are what the operator of a recover-store confirmed.
	Limits []ConfirmedLimit
	// Version grows by 1 with every stored step.
	Version int64
	// ModRevision and CreateRevision are etcd's; 0: not stored.
	ModRevision, CreateRevision int64
}

// Bounds of one plan. Its transaction compares the book of each SKU, and etcd bounds
// what one transaction compares.
const (
	MaxRebalanceMoves = 1_000
	MaxRebalanceSKUs  = 50
)

// RebalanceMove is one move of units that an operation carries out; an empty cell
// is the reserve.
type RebalanceMove struct {
	SKU      ids.SKUID
	From, To ids.CellID
	Units    quantity.Quantity
	// Why it was proposed, in words with the numbers.
	Why string
}

// OperationStep is one finished step.
type OperationStep struct {
	Name   string
	At     time.Time
	Detail string
}

// maxSteps bounds the list: no operation has more, but a defect must not fill etcd.
const maxSteps = 64

// Finished records a step that is done, names the next one, and clears the
// detail of the old. A repeat of the last finished step changes nothing.
func (o Operation) Finished(step, detail, next string, at time.Time) Operation {
	if n := len(o.Steps); n > 0 && o.Steps[n-1].Name == step {
		return o
	}
	o.Steps = append(slices.Clone(o.Steps), OperationStep{Name: step, At: at, Detail: detail})
	if len(o.Steps) > maxSteps {
		o.Steps = o.Steps[len(o.Steps)-maxSteps:]
	}
	o.State, o.Step, o.Detail = OperationRunning, next, ""
	return o
}

// Waits says why the present step does not get on.
func (o Operation) Waits(step, detail string) Operation {
	if !o.State.Terminal() {
		o.State, o.Step, o.Detail = OperationRunning, step, detail
	}
	return o
}

// End closes the operation; ending an ended one changes nothing.
func (o Operation) End(state OperationState, detail string, at time.Time) Operation {
	if o.State.Terminal() {
		return o
	}
	o.State, o.Detail, o.EndedAt = state, detail, at
	if state == OperationDone {
		o.Step = ""
	}
	return o
}

// DoneStep tells whether a step is finished.
func (o Operation) DoneStep(name string) bool {
	return slices.ContainsFunc(o.Steps, func(s OperationStep) bool { return s.Name == name })
}

// About gives the campaign whose books the operation is about, and the one SKU, or ""
// for several or all of them; ok is false for an operation on a cell or the store,
// whose subject may well be spelled as a campaign is.
func (o Operation) About() (campaign ids.CampaignID, sku ids.SKUID, ok bool) {
	switch o.Kind {
	case OperationPublish, OperationDelete, OperationCancel, OperationSetLimit, OperationTransfer, OperationRebalance, OperationHandOver, OperationDraw:
		before, after, _ := strings.Cut(o.Subject, "/")
		return ids.CampaignID(before), ids.SKUID(after), true
	default:
		return "", "", false
	}
}

// AboutCell gives the one cell that the operation is about, a transfer's or handover's giver; "" for
// an operation on many cells or the store.
func (o Operation) AboutCell() ids.CellID {
	switch {
	case o.Kind == OperationFence, o.Kind == OperationReclaim, o.Kind == OperationRestore, o.Kind == OperationWriteOff,
		o.Kind == OperationDrain, o.Kind == OperationRetire:
		return ids.CellID(o.Subject)
	case o.Kind == OperationRebuild:
		cell, _, _ := o.Mirrors()
		return cell
	case o.Kind == OperationTransfer && len(o.Moves) > 0:
		return o.Moves[0].From
	case o.Kind == OperationHandOver:
		return o.Handover.From
	default:
		return ""
	}
}

// MirrorsOf is the subject of a rebuild of a cell's mirrors; no SKU: all of the
// campaign's.
func MirrorsOf(cell ids.CellID, campaign ids.CampaignID, sku ids.SKUID) string {
	return strings.TrimSuffix(strings.Join([]string{string(cell), string(campaign), string(sku)}, "/"), "/")
}

// Mirrors reads the subject of a rebuild.
func (o Operation) Mirrors() (ids.CellID, ids.CampaignID, ids.SKUID) {
	parts := append(strings.SplitN(o.Subject, "/", 3), "", "")
	return ids.CellID(parts[0]), ids.CampaignID(parts[1]), ids.SKUID(parts[2])
}

// SameParameters is nil when a repeat asks for what the operation was made from.
func (o Operation) SameParameters(parameters string) error {
	if o.Parameters == parameters {
		return nil
	}
	return numbered(ErrIDReused, "operation_id", o.ID)
}

// Refuses is ErrOperationState with the facts.
func (o Operation) Refuses(why string) error {
	return numbered(ErrOperationState, "operation_id", o.ID, "kind", o.Kind, "state", o.State, "why", why)
}

// Check verifies a record that was read or is to be stored. ErrBroken.
func (o Operation) Check() error {
	if o.ID == "" || o.Kind == "" || o.Subject == "" || !known(operationStateNames, o.State) {
		return broken("operation %q: kind %q, subject %q, state %s", o.ID, o.Kind, o.Subject, o.State)
	}
	return nil
}

// Steps of a publish, in their order.
const (
	StepRoute     = "route"     // deal the buckets
	StepBooks     = "books"     // stock, book and first grants of every SKU
	StepRules     = "rules"     // every cell has the rules, as PUBLISHING
	StepGrants    = "grants"    // every first grant is applied
	StepReady     = "ready"     // every live cell and edge serves the version
	StepPublished = "published" // the campaign is PUBLISHED
	StepOnSale    = "on-sale"   // every live cell and edge serves that
	StepGiveUp    = "give-up"   // a SKU did not fit: books and limits are taken back
)

// Steps of a cancelling, in their order.
const (
	StepStopSale = "stop"   // the campaign is closed and marked
	StepRefund   = "orders" // cells close what is unpaid and refund what is paid
)
