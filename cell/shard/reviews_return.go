package shard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"

	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/internal/ids"
	eventsv1 "github.com/cellquota/cellquota/proto/cellquota/events/v1"
	cellquotav1 "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// returnVersion is the request's version after its review: that of the inbox outcome plus one.
const returnVersion = inboxVersion + 1

// parkedRow is the inbox row of a message under its lock.
type parkedRow struct {
	campaign   ids.CampaignID
	sku        ids.SKUID
	user       ids.UserID
	request    ids.RequestID
	quantity   int32
	outcome    InboxOutcome
	reason     reservation.Reason
	build      ids.Build
	topic      string
	partition  int32
	offset     int64
	receivedAt time.Time
	ordered    bool
}

// parkedValue is what lay in the log; zero: it is not kept.
type parkedValue struct {
	id      int64
	topicID string
	class   string
	value   []byte
	device  string
}

// returnAdmission rejects a parked message and gives back what its admission took.
func (t tx) returnAdmission(ctx context.Context, ask *ReviewAsk) (ReviewEnding, error) {
	// 1. Lock the row; whoever ended it meanwhile is waited for.
	row, err := t.lockParked(ctx, ask.Reservation)
	if err != nil {
		return ReviewEnding{}, err
	}
	// 2. The same operation again, or somebody else's.
	if ended, err := t.reviewEnded(ctx, ReturnOne, ask); err != nil || ended != nil {
		return orEmpty(ended), err
	}
	switch {
	case row == nil:
		return ReviewEnding{}, fmt.Errorf("%w: no message of reservation %s", ErrNotFound, ask.Reservation)
	case row.ordered, row.outcome != Parked:
		return ReviewEnding{}, t.notParked(ctx, ask.Reservation, row)
	}
	out := ask.ending(ReturnOne, row.quantity)
	out.Request = row.request
	if ask.CheckOnly {
		return out, nil
	}
	// 3. Record it, with what was parked.
	value, err := t.parkedValueOf(ctx, ask.Reservation, row)
	if err != nil {
		return ReviewEnding{}, err
	}
	facts := endedFacts{campaign: row.campaign, sku: row.sku, since: &row.receivedAt, parked: value}
	if out.At, err = t.recordEnding(ctx, out, facts); err != nil {
		return ReviewEnding{}, err
	}
	// 4. Reject the request, free its user's place, leave the give-back.
	return out, t.writeReturn(ctx, ask, row, value)
}

func (t tx) lockParked(ctx context.Context, id ids.ReservationID) (*parkedRow, error) {
	var r parkedRow
	err := t.QueryRow(ctx, sql("parked_lock"), ids.EventID(id)).Scan(&r.campaign, &r.sku, &r.user, &r.request, &r.quantity, &r.outcome, &r.reason,
		&r.build.Fence, &r.build.Count, &r.topic, &r.partition, &r.offset, &r.receivedAt, &r.ordered)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil //nolint:nilnil // no row is an answer
	}
	return &r, err
}

// notParked says what the message became.
func (t tx) notParked(ctx context.Context, id ids.ReservationID, row *parkedRow) error {
	e := &NotInReview{Reservation: id, Is: string(row.outcome), For: row.reason}
	if !row.ordered {
		return e
	}
	if err := t.QueryRow(ctx, sql("reservation_state"), id).Scan(&e.Is, &e.For); err != nil {
		return err
	}
	return e
}

// parkedValueOf finds what was parked: the value at the message's place that names its reservation.
func (t tx) parkedValueOf(ctx context.Context, id ids.ReservationID, row *parkedRow) (parkedValue, error) {
	rows, err := t.Query(ctx, sql("parked_values"), row.topic, row.partition, row.offset)
	if err != nil {
		return parkedValue{}, err
	}
	all, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (parkedValue, error) {
		var v parkedValue
		err := r.Scan(&v.id, &v.topicID, &v.class, &v.value)
		return v, err
	})
	if err != nil {
		return parkedValue{}, err
	}
	for _, v := range all {
		var m eventsv1.Admission
		if proto.Unmarshal(v.value, &m) == nil && m.GetReservationId() == string(id) {
			v.device = m.GetDeviceId()
			return v, nil
		}
	}
	return parkedValue{}, nil
}

func (t tx) writeReturn(ctx context.Context, ask *ReviewAsk, row *parkedRow, value parkedValue) error {
	effect := outRow{
		target: targetMirror, aggregate: requestAggregate(ask.Reservation), eventType: "return", campaign: row.campaign, sku: row.sku,
		traceparent: ask.Traceparent, payload: returnEffect(ask, row, value.device),
	}
	args, err := outArgs([]outRow{effect})
	if err != nil {
		return err
	}
	w := &writes{}
	w.queue("inbox rows", 1, "parked_reject", ids.EventID(ask.Reservation), string(ask.For))
	w.queue("outbox rows", 1, "outbox_insert", args...)
	if value.id != 0 {
		w.queue("parked values", 1, "parked_delete", value.id)
	}
	if err := t.sendCounted(ctx, &w.batch, w.checks); err != nil {
		return err
	}
	// None is usual: a parked message took no place here.
	_, err = t.Exec(ctx, sql("parked_buyer_drop"), row.campaign, string(row.sku), row.user, ask.Reservation)
	return err
}

// returnEffect gives back exactly what the admission took, to a mirror of its own build only, and drops the
// user's mark if it is its own.
func returnEffect(ask *ReviewAsk, row *parkedRow, device string) *eventsv1.MirrorEffect {
	return &eventsv1.MirrorEffect{
		EffectId: "return-" + string(ask.Reservation), CampaignId: string(row.campaign), SkuId: string(row.sku), StockDelta: row.quantity,
		AdmissionBuild: &cellquotav1.Build{FenceVersion: row.build.Fence, Count: row.build.Count}, Settle: true, Mark: eventsv1.MarkAction_MARK_ACTION_DROP_IF_MINE,
		UserId: string(row.user), RequestId: string(row.request), ReservationId: string(ask.Reservation),
		State: cellquotav1.RequestState_REQUEST_STATE_REJECTED, Reason: protoReason(ask.For), AggregateVersion: returnVersion,
		UnpaidHold: true, DeviceId: device,
	}
}
