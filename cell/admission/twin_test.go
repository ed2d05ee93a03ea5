package admission

import (
	"strings"

	"github.com/cellquota/cellquota/internal/ids"
	eventsv1 "github.com/cellquota/cellquota/proto/cellquota/events/v1"
	cellquotav1 "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// twin is the mirror in plain Go: what the library must do, without Redis. It keeps
// no time: windows and permits are either open or over.
type twin struct {
	cell    ids.CellID
	scope   Scope
	present bool // the meta
	ready   bool // state READY
	build   ids.Build
	fence   int64
	window  int // -1 before, 0 open, +1 after
	owned   map[string]func(user ids.UserID) bool

	hasMarks, hasApplied bool
	skus                 map[ids.SKUID]*twinSKU
	marks                map[ids.UserID]Mark
	records              map[twinKey]*twinRecord
	nonces               map[string]bool
	applied              map[string]bool
	debits               map[string]int64
	stream               map[ids.ReservationID]bool
}

type twinSKU struct {
	hasStock            bool
	stock, base, number int64
	gate                cellquotav1.GateState
	bound               int64
	waiting             map[ids.ReservationID]int64 // outstanding → units
	admitted, refused   int64
}

type twinKey struct {
	sku     ids.SKUID
	request ids.RequestID
	user    ids.UserID
}

type twinRecord struct {
	state       cellquotav1.RequestState
	reason      cellquotav1.Reason
	reservation ids.ReservationID
	order       ids.OrderID
	expires     int64
	version     int64
	quantity    int32
	fingerprint string
}

// newTwin is the twin of image(wideScope, build1).
func newTwin(im Image) *twin {
	t := &twin{
		cell: "cell-1", scope: im.Scope, present: true, ready: true, build: im.Build, fence: im.Build.Fence,
		owned:    map[string]func(ids.UserID) bool{},
		hasMarks: true, hasApplied: true, skus: map[ids.SKUID]*twinSKU{}, marks: map[ids.UserID]Mark{},
		records: map[twinKey]*twinRecord{}, nonces: map[string]bool{}, applied: map[string]bool{}, debits: map[string]int64{}, stream: map[ids.ReservationID]bool{},
	}
	for _, s := range im.Stocks {
		t.skus[s.SKU] = &twinSKU{
			hasStock: true, stock: s.Available, base: s.Version, number: s.LastNumber, gate: s.Gate.State, bound: s.Gate.Bound,
			waiting: map[ids.ReservationID]int64{},
		}
	}
	for _, b := range im.Buckets {
		t.owned[b.Domain] = func(u ids.UserID) bool { return b.Set.Has(int(ids.Bucket(u))) }
	}
	return t
}

// unfit is what stands against any decision.
func (t *twin) unfit(sku ids.SKUID, expected ids.Build) Outcome {
	s := t.skus[sku]
	switch {
	case !t.present || !t.ready || t.build != expected, !t.hasMarks, s == nil || !s.hasStock, t.fence < expected.Fence:
		return NotReady
	case t.fence > expected.Fence:
		return Fenced
	}
	return Undecided
}

func heldBy(m Mark) Outcome {
	switch m.State {
	case cellquotav1.RequestState_REQUEST_STATE_PAID:
		return AlreadyPurchased
	case cellquotav1.RequestState_REQUEST_STATE_CLOSED:
		return OrderClosed
	default:
		return AlreadyReserved
	}
}

// admit is the order of architecture §6 as a list of early returns.
func (t *twin) admit(a Ask, expected ids.Build, expired bool) Result {
	if o := t.unfit(a.SKU, expected); o != Undecided {
		return Result{Outcome: o}
	}
	s, key := t.skus[a.SKU], twinKey{a.SKU, a.Request, a.User}
	fingerprint := ids.Fingerprint(t.scope.Campaign, a.SKU, a.User, a.Quantity)
	record, mark := t.records[key], t.marks[a.User]
	_, marked := t.marks[a.User]
	switch {
	case record != nil && record.reason != cellquotav1.Reason_REASON_MOVED:
		if record.fingerprint != "" && record.fingerprint != fingerprint {
			return t.shown(Conflict, key, record)
		}
		return t.shown(Replayed, key, record)
	case record == nil && marked && mark.Request == a.Request && mark.SKU == a.SKU:
		if mark.Quantity > 0 && mark.Quantity != a.Quantity {
			return shownMark(Conflict, mark)
		}
		return shownMark(Replayed, mark)
	case t.window < 0:
		return Result{Outcome: NotStarted}
	case t.window > 0:
		return Result{Outcome: Ended}
	case t.owned[a.Domain] == nil || !t.owned[a.Domain](a.User):
		return Result{Outcome: Moved}
	case marked:
		return shownMark(heldBy(mark), mark)
	case expired || t.nonces[a.Nonce]:
		return Result{Outcome: PermitInvalid}
	case s.gate == cellquotav1.GateState_GATE_STATE_PAUSED:
		return Result{Outcome: Paused}
	case s.gate == cellquotav1.GateState_GATE_STATE_FINAL_SOLD_OUT:
		return Result{Outcome: FinalSoldOut}
	case s.stock < int64(a.Quantity):
		s.refused++
		return Result{Outcome: TempSoldOut, StockLeft: int32(max(s.stock, 0))}
	case int64(len(s.waiting)) >= s.bound && s.gate == cellquotav1.GateState_GATE_STATE_THROTTLED:
		return Result{Outcome: Throttled, StockLeft: int32(max(s.stock, 0))}
	case int64(len(s.waiting)) >= s.bound:
		return Result{Outcome: QueueFull}
	}
	reservation := ids.DeriveReservation(t.scope.Campaign, a.SKU, a.User, a.Request, t.cell, t.build)
	s.stock -= int64(a.Quantity)
	s.admitted++
	s.waiting[reservation] = int64(a.Quantity)
	t.nonces[a.Nonce], t.stream[reservation] = true, true
	t.marks[a.User] = Mark{
		User: a.User, State: cellquotav1.RequestState_REQUEST_STATE_ADMITTED, SKU: a.SKU, Request: a.Request,
		Reservation: reservation, Quantity: a.Quantity,
	}
	t.records[key] = &twinRecord{
		state: cellquotav1.RequestState_REQUEST_STATE_ADMITTED, reservation: reservation, quantity: a.Quantity, fingerprint: fingerprint,
	}
	return t.shown(Accepted, key, t.records[key])
}

func (t *twin) shown(o Outcome, k twinKey, r *twinRecord) Result {
	out := Result{
		Outcome: o, SKU: k.sku, Request: k.request, Reservation: r.reservation, Order: r.order, State: r.state, Reason: r.reason,
		ExpiresAtMS: r.expires, Quantity: r.quantity,
	}
	out.completeOrder()
	return out
}

func shownMark(o Outcome, m Mark) Result {
	out := Result{Outcome: o, SKU: m.SKU, Request: m.Request, Reservation: m.Reservation, State: m.State, Quantity: m.Quantity}
	out.completeOrder()
	return out
}

func (t *twin) lookup(a LookupAsk, expected ids.Build) Result {
	// A record is known whatever became of the stock key.
	switch {
	case !t.present || !t.ready || t.build != expected || t.fence < expected.Fence:
		return Result{Outcome: NotReady}
	case t.fence > expected.Fence:
		return Result{Outcome: Fenced}
	case !t.hasMarks:
		return Result{Outcome: NotReady}
	}
	key := twinKey{a.SKU, a.Request, a.User}
	if r := t.records[key]; r != nil {
		return t.shown(Replayed, key, r)
	}
	if m, ok := t.marks[a.User]; ok && m.Request == a.Request && m.SKU == a.SKU {
		return shownMark(Replayed, m)
	}
	return Result{Outcome: Clear}
}

func (t *twin) precheck(a PrecheckAsk, expected ids.Build) Result {
	if o := t.unfit(a.SKU, expected); o != Undecided {
		return Result{Outcome: o}
	}
	m, marked := t.marks[a.User]
	switch {
	case t.owned[a.Domain] == nil || !t.owned[a.Domain](a.User):
		return Result{Outcome: Moved}
	case marked:
		return shownMark(heldBy(m), m)
	case t.skus[a.SKU].gate == cellquotav1.GateState_GATE_STATE_FINAL_SOLD_OUT:
		return Result{Outcome: FinalSoldOut}
	}
	return Result{Outcome: Clear}
}

// reachable is what stands against a change of a build.
func (t *twin) reachable(sku ids.SKUID, build ids.Build) Change {
	switch {
	case !t.present:
		return Absent
	case t.build != build:
		return OtherBuild
	case !t.hasMarks || !t.hasApplied || t.skus[sku] == nil || !t.skus[sku].hasStock:
		return Absent
	}
	return Unchanged
}

func (t *twin) effect(e Effect) Change {
	m := e.Effect
	sku := ids.SKUID(m.GetSkuId())
	if c := t.reachable(sku, e.Build); c != Unchanged {
		return c
	}
	s, change := t.skus[sku], Applied
	if id, ok := strings.CutPrefix(m.GetEffectId(), "credit:"); ok {
		change = t.giveBack(sku, id)
	} else if m.GetStockDelta() != 0 {
		own := m.GetAdmissionBuild()
		switch {
		case t.applied[m.GetEffectId()]:
			change = Already
		case own != nil && (ids.Build{Fence: own.GetFenceVersion(), Count: own.GetCount()}) != e.Build:
			change = OtherAdmission
		case own == nil && m.GetStockVersion() <= s.base:
			change = BelowBase
		default:
			s.stock += int64(m.GetStockDelta())
			t.applied[m.GetEffectId()] = true
		}
	}
	reservation := ids.ReservationID(m.GetReservationId())
	if m.GetSettle() {
		delete(s.waiting, reservation)
	}
	fresh := t.effectRecord(m)
	t.effectMark(m, fresh)
	return change
}

func (t *twin) effectRecord(m *eventsv1.MirrorEffect) bool {
	if m.GetState() == 0 || m.GetRequestId() == "" {
		return false
	}
	key := twinKey{ids.SKUID(m.GetSkuId()), ids.RequestID(m.GetRequestId()), ids.UserID(m.GetUserId())}
	r := t.records[key]
	switch {
	case r == nil:
		r = &twinRecord{reservation: ids.ReservationID(m.GetReservationId())}
		t.records[key] = r
	case string(r.reservation) != m.GetReservationId() || m.GetAggregateVersion() <= r.version:
		return false
	}
	r.state, r.reason, r.version = m.GetState(), m.GetReason(), m.GetAggregateVersion()
	if m.GetOrderId() != "" {
		r.order = ids.OrderID(m.GetOrderId())
	}
	if m.GetExpiresAtMs() > 0 {
		r.expires = m.GetExpiresAtMs()
	}
	return true
}

func (t *twin) effectMark(m *eventsv1.MirrorEffect, fresh bool) {
	user, mine := ids.UserID(m.GetUserId()), ids.ReservationID(m.GetReservationId())
	if user == "" {
		return
	}
	mark, marked := t.marks[user]
	switch m.GetMark() {
	case eventsv1.MarkAction_MARK_ACTION_DROP_IF_MINE:
		if marked && mark.Reservation == mine {
			delete(t.marks, user)
		}
	case eventsv1.MarkAction_MARK_ACTION_SET_WINNER:
		if marked && string(mark.Reservation) == m.GetWinnerReservationId() {
			return
		}
		state := cellquotav1.RequestState_REQUEST_STATE_PENDING_PAYMENT
		switch m.GetReason() {
		case cellquotav1.Reason_REASON_ALREADY_PURCHASED:
			state = cellquotav1.RequestState_REQUEST_STATE_PAID
		case cellquotav1.Reason_REASON_ORDER_CLOSED:
			state = cellquotav1.RequestState_REQUEST_STATE_CLOSED
		default:
		}
		sku := m.GetWinnerSkuId()
		if sku == "" {
			sku = m.GetSkuId()
		}
		t.marks[user] = Mark{
			User: user, State: state, SKU: ids.SKUID(sku), Request: ids.RequestID(m.GetWinnerRequestId()),
			Reservation: ids.ReservationID(m.GetWinnerReservationId()),
		}
	default:
		switch m.GetState() {
		case cellquotav1.RequestState_REQUEST_STATE_PENDING_PAYMENT, cellquotav1.RequestState_REQUEST_STATE_PAID,
			cellquotav1.RequestState_REQUEST_STATE_CLOSED, cellquotav1.RequestState_REQUEST_STATE_MANUAL_REVIEW:
		default:
			return
		}
		switch {
		case !fresh:
		case !marked:
			t.marks[user] = Mark{User: user, State: m.GetState(), SKU: ids.SKUID(m.GetSkuId()), Request: ids.RequestID(m.GetRequestId()), Reservation: mine}
		case mark.Reservation == mine:
			mark.State = m.GetState()
			t.marks[user] = mark
		}
	}
}

func (t *twin) debit(r Return) Change {
	if c := t.reachable(r.SKU, t.build); c != Unchanged {
		return c
	}
	s := t.skus[r.SKU]
	switch {
	case t.applied[r.AdjustmentID]:
		return Already
	case r.Number <= s.number:
		return StaleNumber
	}
	s.stock -= int64(r.Units)
	s.number = r.Number
	t.applied[r.AdjustmentID], t.debits[r.AdjustmentID] = true, int64(r.Units)
	return Applied
}

func (t *twin) credit(r Return) Change {
	if c := t.reachable(r.SKU, t.build); c != Unchanged {
		return c
	}
	return t.giveBack(r.SKU, r.AdjustmentID)
}

func (t *twin) giveBack(sku ids.SKUID, id string) Change {
	units, held := t.debits[id]
	switch {
	case !held:
		t.applied[id] = true
		return NotHeld
	case t.applied["credit:"+id]:
		return Already
	}
	t.skus[sku].stock += units
	t.applied["credit:"+id] = true
	return Applied
}

func (t *twin) acked(g Granted) {
	delete(t.stream, g.Reservation)
	r := t.records[twinKey{g.SKU, g.Request, g.User}]
	if r != nil && r.reservation == g.Reservation && r.state == cellquotav1.RequestState_REQUEST_STATE_ADMITTED {
		r.state = cellquotav1.RequestState_REQUEST_STATE_QUEUED
	}
}

// drop forgets one key, as DEL does; name is the end of the key.
func (t *twin) drop(name string) {
	switch {
	case name == "meta":
		t.present = false
	case name == "marks":
		t.hasMarks, t.marks = false, map[ids.UserID]Mark{}
	case name == "applied":
		t.hasApplied, t.applied = false, map[string]bool{}
	case strings.HasPrefix(name, "stock:"):
		s := t.skus[ids.SKUID(strings.TrimPrefix(name, "stock:"))]
		s.hasStock, s.stock = false, 0
	case strings.HasPrefix(name, "record:"):
		p := strings.SplitN(name, ":", 4)
		delete(t.records, twinKey{ids.SKUID(p[1]), ids.RequestID(p[2]), ids.UserID(p[3])})
	}
}
