package reconcile

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strings"
	"time"

	"github.com/cellquota/cellquota/cell/admission"
	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/ids"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// bounds are the ages up to which something is under way.
type bounds struct {
	inFlight time.Duration // an admission without an outcome
	settle   time.Duration // an outcome whose effects have left and are not in the mirror
	overdue  time.Duration // an order that should be closed
}

// facts are what the ledgers hold of one reservation; nil: nothing.
type facts struct {
	id      ids.ReservationID
	inbox   *shard.InboxFact
	hold    *shard.HoldFact
	entries []shard.EntryFact

	pending bool      // effects for the mirror are on their way
	now     time.Time // by the database's clock; zero: ages are not judged
	mirror  *sight    // nil: there is no mirror to ask, or it was not asked
}

// sight is what the mirror that admits now holds of one reservation.
type sight struct {
	build    ids.Build
	base     int64 // version of the stock row that the build began with
	now      time.Time
	record   *admission.Seen // of the request; it may be another attempt's
	mark     *admission.Mark // of the user; it may be another request's
	trail    *admission.Trail
	settled  bool // the effect of the outcome, or of a parked message's return, moved stock
	released bool // so did that of the closing
}

// entriesOf counts what was not reversed.
func (f *facts) entriesOf(action string) []shard.EntryFact {
	var out []shard.EntryFact
	for _, e := range f.entries {
		if e.Action == action && !e.Reversed {
			out = append(out, e)
		}
	}
	return out
}

// finding begins one about the facts' ids. what tells two of one kind apart.
func (f *facts) finding(kind shard.FindingKind, state shard.FindingState, action shard.RepairAction, what, detail string, args ...any) shard.Finding {
	out := shard.Finding{
		Kind: kind, State: state, Action: action, Detail: fmt.Sprintf(detail, args...), Reservation: f.id, Event: ids.EventID(f.id),
		ID: findingID(f.id.Cell(), kind, string(f.id), what),
	}
	switch {
	case f.hold != nil:
		h := f.hold
		out.Campaign, out.SKU, out.User, out.Request, out.Order, out.Units = h.Campaign, h.SKU, h.User, h.Request, h.Order, h.Quantity
	case f.inbox != nil:
		i := f.inbox
		out.Campaign, out.SKU, out.User, out.Request, out.Units = i.Campaign, i.SKU, i.User, i.Request, i.Quantity
	case f.mirror != nil && f.mirror.trail != nil:
		t := f.mirror.trail
		out.Campaign, out.SKU, out.User, out.Request = t.Scope.Campaign, t.SKU, t.User, t.Request
		if r := f.mirror.record; r != nil && r.Reservation == f.id {
			out.Units = r.Quantity
		} else if m := f.mirror.mark; m != nil && m.Reservation == f.id {
			out.Units = m.Quantity
		}
	case len(f.entries) > 0:
		e := f.entries[0]
		out.Campaign, out.SKU, out.Units = e.Campaign, e.SKU, max(e.Reserved, -e.Reserved)
	}
	return out
}

// findingID is "CELL.f" and a digest of what it is about, so that the same difference is the same row.
func findingID(cell ids.CellID, kind shard.FindingKind, about ...string) string {
	h := sha256.New()
	for _, part := range append([]string{string(kind)}, about...) {
		_, _ = fmt.Fprintf(h, "%d:%s", len(part), part) // a digest never fails
	}
	return string(cell) + ".f" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(h.Sum(nil)[:16]))
}

// judge names what does not fit, in the database and against the mirror.
func judge(f *facts, b bounds) []shard.Finding {
	out := judgeShard(f, b)
	if f.mirror != nil && len(out) == 0 { // what the shard itself does not know is not the mirror's fault
		out = judgeMirror(f, b)
	}
	return out
}

// judgeShard compares message, reservation, order and ledger. They are written together, so that what
// one snapshot shows needs no age but where time itself is judged.
func judgeShard(f *facts, b bounds) []shard.Finding {
	h, in := f.hold, f.inbox
	reserves := f.entriesOf("RESERVE")
	if h == nil {
		return f.withoutHold(in, reserves)
	}
	var out []shard.Finding
	if in != nil && in.Outcome != shard.Ordered && in.Outcome != shard.ReleasedBack {
		out = append(out, f.finding(shard.StateMismatch, shard.FindingReview, "", "outcome", "its message ended %s %s and a reservation is %s", in.Outcome, in.Reason, h.State))
	}
	if h.Order == "" {
		if h.State == reservation.Released && len(reserves) == 1 && len(f.entriesOf("CONFIRM")) == 0 && len(f.entriesOf("RELEASE")) == 1 {
			return out // it was given up, by a repair
		}
		return append(out, f.withoutOrder(reserves))
	}
	out = append(out, f.quantities()...)
	out = append(out, f.states()...)
	out = append(out, f.actions(reserves)...)
	if len(out) > 0 {
		return out
	}
	switch {
	case h.State == reservation.ManualReview:
		out = append(out, f.finding(shard.Overdue, shard.FindingReview, shard.ActRelease, "review", "the payment channel stayed silent; a person must decide"))
	case h.OverdueS > int64(b.overdue/time.Second):
		out = append(out, f.finding(shard.Overdue, shard.FindingOpen, "", "close", "unpaid, and to be closed since %d s: the closer does not run, or its shard is not writable", h.OverdueS))
	}
	return out
}

// withoutHold: a message or an entry, and no reservation.
func (f *facts) withoutHold(in *shard.InboxFact, reserves []shard.EntryFact) []shard.Finding {
	reversed := len(reserves) == 0 && len(f.entries) > 0
	switch {
	case in != nil && in.Outcome == shard.Parked:
		return []shard.Finding{f.finding(shard.EventWithoutReservation, shard.FindingReview, shard.ActReturn, "", "its message was parked (%s); unit and place are kept", in.Reason)}
	case in != nil && in.Outcome == shard.Ordered && !reversed:
		out := f.finding(shard.EventWithoutReservation, shard.FindingReview, "", "", "its message became an order, and there is no reservation")
		if len(reserves) > 0 {
			out.State, out.Action, out.Entry = shard.FindingProposed, shard.ActReverse, reserves[0].ID
		}
		return []shard.Finding{out}
	case (in == nil || in.Outcome != shard.Ordered) && len(reserves) > 0:
		out := f.finding(shard.MissingAction, shard.FindingProposed, shard.ActReverse, "reservation", "entry %d reserves units for a reservation that is not there", reserves[0].ID)
		out.Entry = reserves[0].ID
		return []shard.Finding{out}
	}
	return nil
}

func (f *facts) withoutOrder(reserves []shard.EntryFact) shard.Finding {
	out := f.finding(shard.ReservationWithoutOrder, shard.FindingReview, "", "", "reservation %s has no order", f.hold.State)
	if f.hold.State == reservation.Reserved && len(reserves) == 1 && len(f.entriesOf("CONFIRM"))+len(f.entriesOf("RELEASE")) == 0 {
		out.State, out.Action = shard.FindingProposed, shard.ActRelease
	}
	return out
}

// quantities: one number of units, wherever it is written.
func (f *facts) quantities() []shard.Finding {
	h := f.hold
	differ := func(what string, got int64) shard.Finding {
		out := f.finding(shard.QuantityMismatch, shard.FindingReview, "", what, "the reservation is of %d units, its %s of %d", h.Quantity, what, got)
		return out
	}
	var out []shard.Finding
	if f.inbox != nil && f.inbox.Quantity != h.Quantity {
		out = append(out, differ("message", int64(f.inbox.Quantity)))
	}
	if h.OrderQuantity != h.Quantity {
		out = append(out, differ("order", int64(h.OrderQuantity)))
	}
	for _, e := range f.entries {
		moved := max(e.Reserved, -e.Reserved)
		if !e.Reversed && moved != h.Quantity {
			finding := differ(e.Action+" entry", int64(moved))
			finding.Entry = e.ID
			out = append(out, finding)
		}
	}
	held := int64(h.Quantity)
	if h.State == reservation.Released {
		held = 0
	}
	if h.Tokens && h.TokenRows != held && (h.State != reservation.Confirmed || h.TokenRows != 0) { // a refund may have put them back
		out = append(out, differ("token rows", h.TokenRows))
	}
	return out
}

// states: pairs that belong together.
func (f *facts) states() []shard.Finding {
	h := f.hold
	var out []shard.Finding
	switch [2]string{string(h.OrderState), string(h.State)} {
	case [2]string{"PENDING_PAYMENT", "RESERVED"}, [2]string{"PENDING_PAYMENT", "MANUAL_REVIEW"}, [2]string{"PAID", "CONFIRMED"}, [2]string{"CLOSED", "RELEASED"}:
	default:
		out = append(out, f.finding(shard.StateMismatch, shard.FindingReview, "", "order", "order %s, reservation %s", h.OrderState, h.State))
	}
	switch {
	case h.OrderState == reservation.PendingPayment && h.Paid > 0:
		out = append(out, f.finding(shard.MissingAction, shard.FindingReview, "", "confirm", "a payment succeeded and the order is not confirmed"))
	case h.OrderState == reservation.OrderPaid && h.Paid == 0:
		out = append(out, f.finding(shard.StateMismatch, shard.FindingReview, "", "payment", "the order is paid and no payment took the money"))
	}
	if h.Buyer != f.id {
		out = append(out, f.finding(shard.StateMismatch, shard.FindingReview, "", "place", "its user's place is held by %q", h.Buyer))
	}
	return out
}

// actions: one RESERVE, then exactly one of CONFIRM or RELEASE (I7).
func (f *facts) actions(reserves []shard.EntryFact) []shard.Finding {
	h := f.hold
	confirms, releases := f.entriesOf("CONFIRM"), f.entriesOf("RELEASE")
	want := map[reservation.ReservationState][2]int{reservation.Confirmed: {1, 0}, reservation.Released: {0, 1}}[h.State]
	var out []shard.Finding
	for _, a := range []struct {
		action string
		have   []shard.EntryFact
		want   int
	}{{"RESERVE", reserves, 1}, {"CONFIRM", confirms, want[0]}, {"RELEASE", releases, want[1]}} {
		for i := a.want; i < len(a.have); i++ {
			e := a.have[i]
			finding := f.finding(shard.DuplicateAction, shard.FindingProposed, shard.ActReverse, fmt.Sprint(e.ID), "%s entry %d of a reservation that is %s is one too many", a.action, e.ID, h.State)
			finding.Entry = e.ID
			out = append(out, finding)
		}
		if len(a.have) >= a.want {
			continue
		}
		finding := f.finding(shard.MissingAction, shard.FindingReview, "", a.action, "the reservation is %s and the ledger has no %s of it", h.State, a.action)
		if a.action == "RELEASE" && len(reserves) == 1 && len(confirms) == 0 {
			finding.State, finding.Action = shard.FindingProposed, shard.ActRelease
		}
		out = append(out, finding)
	}
	return out
}

// judgeMirror compares the mirror's record, mark and stock effects with the shard's outcome.
func judgeMirror(f *facts, b bounds) []shard.Finding {
	m := f.mirror
	if f.pending {
		return nil
	}
	state, known, at := f.outcome()
	settled := known && f.now.Sub(at) > b.settle
	if back := f.notGivenBack(); back != "" && settled {
		return []shard.Finding{f.finding(shard.ClosedWithoutReturn, shard.FindingOpen, shard.ActReturn, "", "%s, and its units did not come back to the mirror of build %s", back, m.build)}
	}
	if r := m.record; r != nil && r.Reservation == f.id {
		return f.judgeRecord(r, state, known, settled, b)
	}
	if k := m.mark; k != nil && k.Reservation == f.id {
		return f.judgeMark(state, known, settled)
	}
	return nil
}

// outcome is what the mirror should show, and since when.
func (f *facts) outcome() (state pb.RequestState, known bool, at time.Time) {
	switch h, in := f.hold, f.inbox; {
	case h != nil && h.State == reservation.ManualReview:
		return pb.RequestState_REQUEST_STATE_MANUAL_REVIEW, true, h.UpdatedAt
	case h != nil && h.Order == "": // given up by a repair; held, nobody knows
		return pb.RequestState_REQUEST_STATE_CLOSED, h.State == reservation.Released, h.UpdatedAt
	case h != nil:
		return map[reservation.OrderState]pb.RequestState{
			reservation.PendingPayment: pb.RequestState_REQUEST_STATE_PENDING_PAYMENT, reservation.OrderPaid: pb.RequestState_REQUEST_STATE_PAID,
			reservation.OrderClosed: pb.RequestState_REQUEST_STATE_CLOSED,
		}[h.OrderState], true, h.UpdatedAt
	case in == nil || in.Outcome == shard.Ordered:
		return 0, false, time.Time{}
	case in.Outcome == shard.Parked:
		return pb.RequestState_REQUEST_STATE_MANUAL_REVIEW, true, in.ReceivedAt
	case in.Outcome == shard.ReleasedBack:
		return pb.RequestState_REQUEST_STATE_RELEASED, true, in.ReceivedAt
	default:
		return pb.RequestState_REQUEST_STATE_REJECTED, true, in.ReceivedAt
	}
}

// notGivenBack tells in words why the units should be in the mirror again; "": they are, or need not be.
func (f *facts) notGivenBack() string {
	m := f.mirror
	if f.hold == nil {
		if in := f.inbox; in != nil && in.Outcome == shard.Rejected && in.Build == m.build && !m.settled {
			return "the request was rejected"
		}
		return ""
	}
	if f.hold.State != reservation.Released || m.released {
		return ""
	}
	for _, e := range f.entriesOf("RELEASE") {
		if e.StockVersion > m.base {
			return "the order was closed"
		}
	}
	return ""
}

// judgeRecord: the request's record is of this reservation.
func (f *facts) judgeRecord(r *admission.Seen, state pb.RequestState, known, settled bool, b bounds) []shard.Finding {
	waits := r.State == pb.RequestState_REQUEST_STATE_ADMITTED || r.State == pb.RequestState_REQUEST_STATE_QUEUED
	switch {
	case known && r.State == state, known && !settled:
		return nil
	case known:
		return []shard.Finding{f.finding(shard.StateMismatch, shard.FindingOpen, shard.ActRepublish, "record", "the mirror shows %s, the shard has %s", word(r.State), word(state))}
	case !waits && r.State != pb.RequestState_REQUEST_STATE_REJECTED && r.State != pb.RequestState_REQUEST_STATE_RELEASED:
		return []shard.Finding{f.finding(shard.EventWithoutReservation, shard.FindingReview, "", "record", "the mirror shows %s, the shard has nothing of it", word(r.State))}
	case !waits || f.mirror.now.Sub(time.UnixMilli(r.AdmittedAtMS)) <= b.inFlight:
		return nil // its inbox row may be pruned; or it is under way
	}
	kind, where := shard.EventWithoutReservation, "the log acknowledged it"
	if r.State == pb.RequestState_REQUEST_STATE_ADMITTED {
		kind, where = shard.TakenWithoutEvent, "the log never acknowledged it"
	}
	if t := f.mirror.trail; t != nil && len(t.Message) > 0 {
		return []shard.Finding{f.finding(kind, shard.FindingOpen, shard.ActRepublish, "", "the mirror took its units, %s, and the shard has no outcome", where)}
	}
	return []shard.Finding{f.finding(kind, shard.FindingProposed, shard.ActTombstone, "", "the mirror took its units, %s, its message is lost, and the shard has no outcome", where)}
}

// judgeMark: the user's mark is of this reservation, and the request's record is not.
func (f *facts) judgeMark(state pb.RequestState, known, settled bool) []shard.Finding {
	m := f.mirror
	switch {
	case known && settled && (state == pb.RequestState_REQUEST_STATE_REJECTED || state == pb.RequestState_REQUEST_STATE_RELEASED), !known && m.settled:
		return []shard.Finding{f.finding(shard.OrphanBuyerMark, shard.FindingProposed, shard.ActRelease, "mark", "the mirror keeps a place for a request that has none")}
	case known || f.inbox != nil || m.trail != nil && (m.trail.Outstanding || m.trail.InStream):
		return nil
	case m.mark.State == pb.RequestState_REQUEST_STATE_ADMITTED || m.mark.State == pb.RequestState_REQUEST_STATE_QUEUED:
		return []shard.Finding{f.finding(shard.TakenWithoutEvent, shard.FindingProposed, shard.ActTombstone, "", "the mirror took its units, record and message are lost, and the shard has no outcome")}
	}
	return []shard.Finding{f.finding(shard.OrphanBuyerMark, shard.FindingProposed, shard.ActRelease, "mark", "the mirror keeps a place that the shard does not know")}
}

func word(s pb.RequestState) string { return strings.TrimPrefix(s.String(), "REQUEST_STATE_") }
