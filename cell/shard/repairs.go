package shard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/telemetry"
	eventsv1 "github.com/cellquota/cellquota/proto/cellquota/events/v1"
	cellquotav1 "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Outcomes of a repair.
const (
	RepairDone    = "DONE"    // rows were added
	RepairAlready = "ALREADY" // they were there
	RepairFailed  = "FAILED"  // it did not help yet
	RepairClosed  = "CLOSED"  // the ledgers agree by themselves
)

// ErrRepair: the action does not fit the finding as it is now, or what it needs is missing; the text says
// which. Nothing was written.
var ErrRepair = errors.New("the repair is refused")

// RepairNote is who repairs, and why. Approval and Approver belong to a reversal.
type RepairNote struct {
	Action             RepairAction
	Actor, Reason      string
	Incident           string
	Approval, Approver string
}

// note writes what was done, in the transaction that did it.
func (t tx) note(ctx context.Context, finding string, n RepairNote, outcome, detail string) error {
	tag, err := t.Exec(ctx, sql("finding_note"), finding, n.Action, outcome, detail, n.Actor, n.Reason, n.Incident, n.Approval, n.Approver)
	if err != nil {
		return err
	}
	return exactly("repair notes", tag.RowsAffected(), 1)
}

// repair runs do under the finding's lock and closes the finding with it. One that was repaired meanwhile
// answers RepairAlready. Its commit, when it is unknown, is looked for by the same ids.
func (s *Store) repair(ctx context.Context, verb string, f Finding, n RepairNote, do func(context.Context, tx) (outcome, detail string, err error)) (outcome, detail string, err error) {
	err = s.resolved(ctx, func() error {
		return s.inTx(ctx, verb, needSettle, func(ctx context.Context, t tx) error {
			var state FindingState
			err := t.QueryRow(ctx, sql("finding_lock"), f.ID).Scan(&state)
			switch {
			case errors.Is(err, pgx.ErrNoRows):
				return fmt.Errorf("%w: finding %s", ErrNotFound, f.ID)
			case err != nil:
				return err
			case state == FindingRepaired:
				outcome, detail = RepairAlready, "it was repaired before"
				return nil
			}
			if outcome, detail, err = do(ctx, t); err != nil {
				return err
			}
			tag, err := t.Exec(ctx, sql("finding_repaired"), f.ID, n.Action)
			if err != nil {
				return err
			}
			return errors.Join(exactly("findings", tag.RowsAffected(), 1), t.note(ctx, f.ID, n, outcome, detail))
		})
	})
	if err == nil && outcome != RepairAlready {
		s.log.Info("a finding is repaired", telemetry.Event, "finding_repaired", "finding_id", f.ID, "kind", string(f.Kind), "action", string(n.Action),
			telemetry.CampaignID, f.Campaign, telemetry.SKUID, f.SKU, telemetry.RequestID, f.Request, telemetry.EventID, f.Event, telemetry.ReservationID, f.Reservation,
			telemetry.OrderID, f.Order, telemetry.OldState, string(f.State), telemetry.NewState, string(FindingRepaired), "actor", n.Actor, "incident", n.Incident, "detail", detail)
	}
	return outcome, detail, err
}

// CloseFinding ends a finding whose ledgers agree again.
func (s *Store) CloseFinding(ctx context.Context, f Finding, n RepairNote, detail string) error {
	_, _, err := s.repair(ctx, "close_finding", f, n, func(context.Context, tx) (string, string, error) { return RepairClosed, detail, nil })
	return err
}

// OwnFinding assigns a finding to a person.
func (s *Store) OwnFinding(ctx context.Context, id, owner string) error {
	return s.inTx(ctx, "own_finding", needSettle, func(ctx context.Context, t tx) error {
		tag, err := t.Exec(ctx, sql("finding_own"), id, owner)
		if err == nil && tag.RowsAffected() == 0 {
			return fmt.Errorf("%w: finding %s", ErrNotFound, id)
		}
		return err
	})
}

// TombstoneRequest records that an admission of a build will never be an order, and leaves its give-back.
// The message, should it come late, finds the row and changes nothing. ErrRepair: the shard has an outcome
// of another kind by now.
func (s *Store) TombstoneRequest(ctx context.Context, f Finding, build ids.Build, n RepairNote) (outcome, detail string, err error) {
	if f.Units < 1 || f.Request == "" || f.User == "" || build.IsZero() {
		return "", "", fmt.Errorf("%w: tombstone needs request, user, units and build of the admission", ErrRepair)
	}
	return s.repair(ctx, "tombstone_request", f, n, func(ctx context.Context, t tx) (string, string, error) {
		tag, err := t.Exec(ctx, sql("finding_tombstone"), f.Reservation, f.Request, f.Campaign, f.SKU, f.User, f.Units, build.Fence, build.Count, t.writer.FenceVersion)
		if err != nil {
			return "", "", err
		}
		if tag.RowsAffected() == 0 {
			var have InboxOutcome
			var reason string
			if err := t.QueryRow(ctx, sql("finding_inbox"), f.Reservation).Scan(&have, &reason); err != nil || have != Rejected {
				return "", "", fmt.Errorf("%w: the shard has an outcome of event %s by now: %s", ErrRepair, f.Event, have)
			}
			return RepairAlready, "the event was rejected before: " + reason, nil
		}
		return RepairDone, "event " + f.Event + " ends REJECTED LOST_ADMISSION; its units go back to the mirror by reservation id", t.leave(ctx, f.rejected(build, reservation.LostAdmission))
	})
}

// rejected is the effect of a rejection: it gives back what an admission of a build took, and its place.
func (f Finding) rejected(build ids.Build, reason reservation.Reason) []outRow {
	return []outRow{f.row("settle", &eventsv1.MirrorEffect{
		EffectId: "settle-" + string(f.Reservation), StockDelta: f.Units, AdmissionBuild: &cellquotav1.Build{FenceVersion: build.Fence, Count: build.Count},
		Settle: true, Mark: eventsv1.MarkAction_MARK_ACTION_DROP_IF_MINE, State: cellquotav1.RequestState_REQUEST_STATE_REJECTED,
		Reason: protoReason(reason), AggregateVersion: inboxVersion,
	})}
}

// underReturn names a give-back as the return of a parked message does: under another id it would be a
// second one.
func (f Finding) underReturn(rows []outRow) []outRow {
	for _, r := range rows {
		if e, ok := r.payload.(*eventsv1.MirrorEffect); ok && e.GetState() == cellquotav1.RequestState_REQUEST_STATE_REJECTED {
			e.EffectId, e.AggregateVersion = "return-"+string(f.Reservation), returnVersion
		}
	}
	return rows
}

// row is an effect for the mirror about the finding's request.
func (f Finding) row(kind string, e *eventsv1.MirrorEffect) outRow {
	e.CampaignId, e.SkuId, e.UserId, e.RequestId, e.ReservationId = string(f.Campaign), string(f.SKU), string(f.User), string(f.Request), string(f.Reservation)
	return outRow{target: targetMirror, aggregate: requestAggregate(f.Reservation), eventType: kind, campaign: f.Campaign, sku: f.SKU, payload: e}
}

// Again says when a finding's next automatic repair may be tried.
type Again struct {
	Pause     time.Duration
	Exhausted bool // it waits for a person from now on
	Person    bool // a person asked: the cell looks after it again, from the first try
}

// SentAgain notes that a message or effects were sent once more; the finding stays open until its ledgers
// agree.
func (s *Store) SentAgain(ctx context.Context, f Finding, n RepairNote, outcome, detail string, again Again) error {
	return s.inTx(ctx, "sent_again", needSettle, func(ctx context.Context, t tx) error {
		return t.sentAgain(ctx, f, n, outcome, detail, again)
	})
}

func (t tx) sentAgain(ctx context.Context, f Finding, n RepairNote, outcome, detail string, again Again) error {
	if again.Person {
		if _, err := t.Exec(ctx, sql("finding_reopen"), f.ID, again.Pause.Seconds(), n.Action); err != nil { // one that is repaired by now stays so
			return err
		}
		return t.note(ctx, f.ID, n, outcome, detail)
	}
	tag, err := t.Exec(ctx, sql("finding_tried"), f.ID, again.Pause.Seconds())
	if err != nil || tag.RowsAffected() == 0 { // a person has it, or it is repaired
		return err
	}
	if again.Exhausted {
		if _, err := t.Exec(ctx, sql("finding_review"), f.ID); err != nil {
			return err
		}
	}
	return t.note(ctx, f.ID, n, outcome, detail)
}

// LeaveEffects leaves the effects of a request's outcome once more, under their own ids: a mirror that had
// them changes nothing. The finding stays open until the mirror shows them.
func (s *Store) LeaveEffects(ctx context.Context, f Finding, n RepairNote, again Again) error {
	look, err := s.Look(ctx, []ids.ReservationID{f.Reservation})
	if err != nil {
		return err
	}
	rows := f.outcomeEffects(look)
	var returned bool
	if err := s.pool.QueryRow(ctx, sql("finding_returned"), f.Reservation).Scan(&returned); err != nil {
		return translate(err)
	}
	if returned {
		rows = f.underReturn(rows)
	}
	if len(rows) == 0 {
		return fmt.Errorf("%w: the shard has no outcome of reservation %s whose effects could be sent again", ErrRepair, f.Reservation)
	}
	return s.inTx(ctx, "leave_effects", needSettle, func(ctx context.Context, t tx) error {
		if err := t.leave(ctx, rows); err != nil {
			return err
		}
		return t.sentAgain(ctx, f, n, RepairDone, "effects of the outcome were sent again under their own ids", again)
	})
}

// outcomeEffects are the effects that the mirror should have had, made from the rows: those of the outbox
// may be pruned.
func (f Finding) outcomeEffects(look Look) []outRow {
	for i := range look.Holds {
		if h := &look.Holds[i]; h.Reservation == f.Reservation && h.Order != "" {
			return f.orderEffects(h, look.Entries)
		}
	}
	for i := range look.Inbox {
		if in := &look.Inbox[i]; in.Reservation == f.Reservation && in.Outcome == Rejected {
			f.Units = in.Quantity
			return f.rejected(in.Build, in.Reason)
		}
	}
	return nil
}

func (f Finding) orderEffects(h *HoldFact, entries []EntryFact) []outRow {
	settle := f.row("settle", &eventsv1.MirrorEffect{
		EffectId: "settle-" + string(f.Reservation), Settle: true, State: cellquotav1.RequestState_REQUEST_STATE_PENDING_PAYMENT, OrderId: string(h.Order), AggregateVersion: inboxVersion,
	})
	e := &eventsv1.MirrorEffect{OrderId: string(h.Order), Reason: protoReason(h.Reason), AggregateVersion: h.OrderVersion + 1}
	switch {
	case h.OrderState == reservation.OrderPaid:
		e.EffectId, e.State = "paid-"+string(f.Reservation), cellquotav1.RequestState_REQUEST_STATE_PAID
		return []outRow{settle, f.row("paid", e)}
	case h.OrderState == reservation.OrderClosed:
		e.EffectId, e.State = "release-"+string(f.Reservation), cellquotav1.RequestState_REQUEST_STATE_CLOSED
		for _, entry := range entries {
			if entry.Action == actionRelease && entry.Reservation == f.Reservation && !entry.Reversed {
				e.StockDelta, e.StockVersion = h.Quantity, entry.StockVersion
			}
		}
		return []outRow{settle, f.row("release", e)}
	case h.State == reservation.ManualReview:
		e.EffectId, e.State = fmt.Sprintf("review-%s-%d", f.Reservation, h.OrderVersion), cellquotav1.RequestState_REQUEST_STATE_MANUAL_REVIEW
		return []outRow{settle, f.row("review", e)}
	}
	return []outRow{settle}
}

// DropPlace gives up a place with nothing behind it, in the shard and in the mirror.
func (s *Store) DropPlace(ctx context.Context, f Finding, n RepairNote) (outcome, detail string, err error) {
	return s.repair(ctx, "drop_place", f, n, func(ctx context.Context, t tx) (string, string, error) {
		tag, err := t.Exec(ctx, sql("finding_buyer_drop"), f.Campaign, f.User, f.Reservation)
		if err != nil {
			return "", "", err
		}
		e := &eventsv1.MirrorEffect{EffectId: "place-" + f.ID, Mark: eventsv1.MarkAction_MARK_ACTION_DROP_IF_MINE}
		return RepairDone, fmt.Sprintf("%d place of the shard and the mark of the mirror, if it is this reservation's, are given up", tag.RowsAffected()), t.leaveWhere(ctx, f, e)
	})
}

// leaveWhere leaves an effect about a user, for the mirrors of the finding's SKU, or of every SKU of a campaign
// whose scope is the whole: one of them is enough, they share it.
func (t tx) leaveWhere(ctx context.Context, f Finding, e *eventsv1.MirrorEffect) error {
	if f.SKU == "" {
		if err := t.QueryRow(ctx, sql("finding_any_sku"), f.Campaign).Scan(&f.SKU); err != nil {
			return err
		}
	}
	return t.leave(ctx, []outRow{f.row("place", e)})
}

// ReleaseUnits releases a reservation whose order or whose RELEASE entry is missing: the reservation ends
// RELEASED, the units are available again, the mirror gets them by reservation id. ErrRepair: it is not in
// such a state by now.
func (s *Store) ReleaseUnits(ctx context.Context, f Finding, n RepairNote) (outcome, detail string, err error) {
	return s.repair(ctx, "release_units", f, n, func(ctx context.Context, t tx) (string, string, error) {
		stock, err := t.lockStock(ctx, f.Campaign, f.SKU)
		if err != nil {
			return "", "", err
		}
		tag, err := t.Exec(ctx, sql("finding_release"), f.Reservation, f.Units)
		if err != nil {
			return "", "", err
		}
		if tag.RowsAffected() == 0 {
			return "", "", fmt.Errorf("%w: reservation %s has an order, or is not held by exactly one RESERVE of %d units", ErrRepair, f.Reservation, f.Units)
		}
		m := moves{{campaign: f.Campaign, sku: f.SKU, action: actionRelease, businessNo: string(f.Reservation), available: f.Units, reserved: -f.Units, released: f.Units}}
		if err := t.apply(ctx, m, "repair", n.Actor); err != nil {
			return "", "", err
		}
		e := &eventsv1.MirrorEffect{
			EffectId: "release-" + string(f.Reservation), StockDelta: f.Units, StockVersion: stock.Version + 1, State: cellquotav1.RequestState_REQUEST_STATE_CLOSED,
			Reason: protoReason(reservation.Cancelled), AggregateVersion: stock.Version + 1,
		}
		return RepairDone, fmt.Sprintf("%d units of reservation %s are available again", f.Units, f.Reservation), t.leave(ctx, []outRow{f.row("release", e)})
	})
}

// ReverseEntry adds the opposite of the finding's ledger entry, under the finding's id, with the actor. It
// needs an incident and somebody else's approval. ErrRepair: the entry is not there, was reversed
// before, is the only one of its action that its reservation stands on, or the stock row does not hold the
// units.
func (s *Store) ReverseEntry(ctx context.Context, f Finding, n RepairNote) (outcome, detail string, err error) {
	switch {
	case f.Entry == 0:
		return "", "", fmt.Errorf("%w: finding %s names no ledger entry", ErrRepair, f.ID)
	case n.Incident == "" || n.Approval == "" || n.Approver == "" || n.Approver == n.Actor:
		return "", "", fmt.Errorf("%w: a reversal needs an incident and the approval of a second person", ErrRepair)
	}
	outcome, detail, err = s.repair(ctx, "reverse_entry", f, n, func(ctx context.Context, t tx) (string, string, error) {
		if _, err := t.lockStock(ctx, f.Campaign, f.SKU); err != nil {
			return "", "", err
		}
		var entry, version int64
		var delta int32
		err := t.QueryRow(ctx, sql("finding_reverse"), f.Campaign, f.SKU, f.Entry, f.ID, t.writer.FenceVersion, n.Actor).Scan(&entry, &delta, &version)
		if errors.Is(err, pgx.ErrNoRows) {
			return t.reversed(ctx, f)
		}
		if err != nil {
			return "", "", err
		}
		detail := fmt.Sprintf("entry %d reverses entry %d", entry, f.Entry)
		if delta == 0 {
			return RepairDone, detail, nil
		}
		return RepairDone, detail, t.leave(ctx, []outRow{{
			target: targetMirror, aggregate: "stock/" + string(f.Campaign) + "/" + string(f.SKU), eventType: "reversal", campaign: f.Campaign, sku: f.SKU,
			payload: &eventsv1.MirrorEffect{
				EffectId: "reversal-" + f.ID, CampaignId: string(f.Campaign), SkuId: string(f.SKU), StockDelta: delta, StockVersion: version, AggregateVersion: version,
			},
		}})
	})
	if errors.Is(err, ErrBadData) {
		return "", "", fmt.Errorf("%w: the stock row does not hold the units that would go back: %w", ErrRepair, err)
	}
	return outcome, detail, err
}

// reversed tells why nothing was reversed.
func (t tx) reversed(ctx context.Context, f Finding) (outcome, detail string, err error) {
	var entry int64
	err = t.QueryRow(ctx, sql("finding_reversed"), f.Campaign, f.SKU, f.ID).Scan(&entry)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", "", fmt.Errorf("%w: entry %d is not there, was reversed by another finding, or is what its reservation stands on", ErrRepair, f.Entry)
	}
	return RepairAlready, fmt.Sprintf("entry %d reversed it before", entry), err
}
