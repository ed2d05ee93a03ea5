package admission

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/cellquota/cellquota/cell/events"
	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/internal/ids"
	eventsv1 "github.com/cellquota/cellquota/proto/cellquota/events/v1"
	cellquotav1 "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Ask is one request that wants units. The caller has checked identity, grammar,
// the permit's MAC and the rules; the mirror decides what only it can know.
type Ask struct {
	Scope    Scope
	SKU      ids.SKUID
	User     ids.UserID
	Request  ids.RequestID
	Quantity int32  // 1 to events.MaxQuantity
	Domain   string // traffic domain; "" when the campaign is one

	Nonce             string // of the permit; not empty
	PermitExpiresAtMS int64  // Unix milliseconds; compared with Redis TIME

	Price           *cellquotav1.Money // of one unit, as of now
	CampaignVersion int64              // of the rules the caller judged by
	DeviceID        string
	RiskTier        string
	Holds           reservation.Holds // the campaign's bounds on unpaid orders
	Traceparent     string            // W3C, or ""

	// Baseline is for Direct alone: orders per second that the shard may make of this mirror while Redis
	// is away; 0: the campaign has no mirror.
	Baseline float64
}

// Result is the answer to one Ask, Lookup or Precheck.
type Result struct {
	Outcome Outcome
	// Err explains Undecided, Paused and NotReady when Redis or the server is at
	// fault. With ErrUnavailable the units may have been taken: the same request
	// sent again finds out.
	Err error

	// Of the request itself (Accepted, Replayed, Conflict), or of the one that
	// holds the user's place (Already…, OrderClosed).
	Build        ids.Build // of the mirror that answered; its Fence is the admission's
	SKU          ids.SKUID
	Request      ids.RequestID
	Reservation  ids.ReservationID
	Order        ids.OrderID // "" until there is one
	State        cellquotav1.RequestState
	Reason       cellquotav1.Reason
	ExpiresAtMS  int64 // of the order; 0: none
	AdmittedAtMS int64 // by Redis TIME; 0: unknown
	Quantity     int32 // 0: unknown
	StockLeft    int32 // TempSoldOut, Throttled: units left, never below 0
	OpensInMS    int64 // NotStarted

	// Granted is what the relay must bring to the log; only with Accepted.
	Granted *Granted

	streamID string
}

// Granted is one admission on its way to the log.
type Granted struct {
	Scope        Scope
	Build        ids.Build
	SKU          ids.SKUID
	User         ids.UserID
	Request      ids.RequestID
	Reservation  ids.ReservationID
	StreamID     string // its entry in the mirror's stream
	Message      []byte // the value to produce, as the stream has it
	AdmittedAtMS int64
	Traceparent  string
}

// admitCall is an Ask with everything that is derived for it.
type admitCall struct {
	Ask
	build       ids.Build
	reservation ids.ReservationID
	fingerprint string
	prepared    []byte
	attempt     string
}

var admitFunction = function[admitCall, Result]{
	name: "cq2_admit",
	render: func(a admitCall) ([]string, []any) {
		k := a.Scope.at(a.build)
		keys := []string{
			a.Scope.metaKey(), k.stock(a.SKU), k.marks(), k.buckets(a.Domain), k.record(a.SKU, a.Request, a.User),
			k.nonce(a.Nonce), k.outstanding(a.SKU), k.pending(a.SKU), k.stream(), k.stats(a.SKU),
		}
		return keys, []any{
			a.build.String(), a.build.Fence, string(a.SKU), string(a.User), string(a.Request), string(a.reservation),
			a.fingerprint, a.Quantity, ids.Bucket(a.User), a.Domain, a.PermitExpiresAtMS,
			a.prepared, a.attempt, a.Traceparent,
		}
	},
	decode: decodeResult,
}

// Admit asks the mirrors for units, all asks in one pipeline, and answers in the
// same order. An ask that breaks a bound is ErrInvalidAsk and sent nowhere. ctx
// bounds the wait only: what ended early may have happened. Asks of one pipeline
// are decided one by one, so a request that stands twice in it is accepted once
// and replayed once.
func (c *Client) Admit(ctx context.Context, asks []Ask) []Result {
	started := c.clock.Now()
	results := c.admit(ctx, asks)
	c.metrics.admitted(results, c.clock.Now().Sub(started))
	return results
}

func (c *Client) admit(ctx context.Context, asks []Ask) []Result {
	c.calls.RLock()
	defer c.calls.RUnlock()
	results := make([]Result, len(asks))
	calls, at := make([]admitCall, 0, len(asks)), make([]int, 0, len(asks))
	for i, ask := range asks {
		build, ok := c.Expected(ask.Scope)
		if !ok {
			results[i].Outcome = NotReady
			continue
		}
		call, err := c.prepare(ask, build)
		if err != nil {
			results[i].Err = err
			continue
		}
		calls, at = append(calls, call), append(at, i)
	}
	if len(calls) == 0 {
		return results
	}
	ctx, cancel := context.WithTimeout(ctx, c.budget)
	defer cancel()
	calls, at = c.holdBack(ctx, calls, at, results)
	outs, errs := admitFunction.run(ctx, c, c.hot, calls)
	for n, i := range at {
		results[i] = calls[n].finish(outs[n], errs[n])
	}
	c.holdAdmitted(ctx, calls, outs)
	return results
}

// prepare derives ids and bytes for an ask under a build.
func (c *Client) prepare(a Ask, build ids.Build) (admitCall, error) {
	switch {
	case a.Quantity < 1 || a.Quantity > events.MaxQuantity:
		return admitCall{}, fmt.Errorf("%w: quantity must be 1 to %d", ErrInvalidAsk, events.MaxQuantity)
	case a.Nonce == "":
		return admitCall{}, fmt.Errorf("%w: nonce must not be empty", ErrInvalidAsk)
	case a.User == "" || a.Request == "" || a.SKU == "":
		return admitCall{}, fmt.Errorf("%w: user_id, request_id and sku_id must not be empty", ErrInvalidAsk)
	case a.Scope.SKU != "" && a.Scope.SKU != a.SKU:
		return admitCall{}, fmt.Errorf("%w: sku_id must be the scope's", ErrInvalidAsk)
	}
	call := admitCall{
		Ask: a, build: build,
		reservation: ids.DeriveReservation(a.Scope.Campaign, a.SKU, a.User, a.Request, c.cell, build),
		fingerprint: ids.Fingerprint(a.Scope.Campaign, a.SKU, a.User, a.Quantity),
		attempt:     c.attempts + strconv.FormatUint(c.attempt.Add(1), 36),
	}
	prepared, err := events.PrepareAdmission(&eventsv1.Admission{
		ReservationId: string(call.reservation), RequestId: string(a.Request), CampaignId: string(a.Scope.Campaign),
		SkuId: string(a.SKU), UserId: string(a.User), Quantity: a.Quantity, Domain: a.Domain,
		Build: events.ProtoBuild(build), Fingerprint: call.fingerprint, Price: a.Price, CampaignVersion: a.CampaignVersion,
		PermitExpiresAtMs: a.PermitExpiresAtMS, DeviceId: a.DeviceID, RiskTier: a.RiskTier,
	})
	if err != nil {
		return admitCall{}, fmt.Errorf("%w: %w", ErrInvalidAsk, err)
	}
	call.prepared = prepared
	return call, nil
}

// finish completes the script's answer, or turns an error into the outcome that a
// customer is told: never one about stock.
func (a admitCall) finish(r Result, err error) Result {
	if err != nil {
		return failed(err)
	}
	r.Build = a.build
	if r.Outcome == Accepted {
		r.Granted = &Granted{
			Scope: a.Scope, Build: a.build, SKU: a.SKU, User: a.User, Request: a.Request, Reservation: r.Reservation,
			StreamID: r.streamID, Message: events.AppendAdmittedAt(a.prepared, r.AdmittedAtMS),
			AdmittedAtMS: r.AdmittedAtMS, Traceparent: a.Traceparent,
		}
	}
	return r
}

// failed is the answer when Redis gave none.
func failed(err error) Result {
	if errors.Is(err, ErrUnavailable) {
		return Result{Outcome: Paused, Err: err}
	}
	return Result{Outcome: NotReady, Err: err}
}

// decodeResult reads the thirteen elements of answer() in library.lua.
func decodeResult(r reply) (Result, error) {
	r.arity(13)
	out := Result{
		Outcome: Outcome(r.code(int(TooManyUnpaid))), State: cellquotav1.RequestState(r.int(1)), Reason: cellquotav1.Reason(r.int(2)),
		Reservation: ids.ReservationID(r.text(3)), Order: ids.OrderID(r.text(4)), ExpiresAtMS: r.int(5), AdmittedAtMS: r.int(6),
		StockLeft: int32(r.int(7)), Request: ids.RequestID(r.text(8)), SKU: ids.SKUID(r.text(9)), OpensInMS: r.int(10),
		Quantity: int32(r.int(11)), streamID: r.text(12),
	}
	out.completeOrder()
	return out, nil
}

// completeOrder derives the order's id where only a mark was left to say that
// there is one.
func (r *Result) completeOrder() {
	switch r.State {
	case cellquotav1.RequestState_REQUEST_STATE_PENDING_PAYMENT, cellquotav1.RequestState_REQUEST_STATE_PAID,
		cellquotav1.RequestState_REQUEST_STATE_CLOSED:
		if r.Order == "" {
			r.Order = r.Reservation.Order()
		}
	default:
	}
}
