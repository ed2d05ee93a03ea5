package shard

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/internal/ids"
)

// InboxOutcome is what became of a message.
type InboxOutcome string

// The outcomes of the inbox (seams, Words).
const (
	Ordered      InboxOutcome = "ORDERED"
	Rejected     InboxOutcome = "REJECTED"
	ReleasedBack InboxOutcome = "RELEASED"
	Parked       InboxOutcome = "PARKED"
)

// RequestRow is what the shard knows of a request, with the raised build and messages_from of the
// same snapshot: by them a receipt without a row is read.
type RequestRow struct {
	Found        bool // false: the shard has no outcome for it; only the two fields below are set
	RaisedBuild  ids.Build
	MessagesFrom int64

	Campaign         ids.CampaignID
	SKU              ids.SKUID
	User             ids.UserID
	Request          ids.RequestID
	Quantity         int32
	Reservation      ids.ReservationID
	Fingerprint      string
	Outcome          InboxOutcome
	Reason           reservation.Reason
	Build            ids.Build
	AdmittedAt       time.Time
	OutcomeAge       time.Duration // since the outcome was recorded, by the database's clock; a list has none
	Order            ids.OrderID   // empty: no order
	OrderState       reservation.OrderState
	ReservationState reservation.ReservationState
	OrderReason      reservation.Reason
	OrderVersion     int64
	ExpiresAt        time.Time
}

// LookupRequest reads a request's newest attempt, or the answer that a handover carried here. It never answers ErrNotFound: a request without a
// row is a row with Found false.
func (s *Store) LookupRequest(ctx context.Context, campaign ids.CampaignID, sku ids.SKUID, user ids.UserID, request ids.RequestID) (RequestRow, error) {
	r := RequestRow{Campaign: campaign, SKU: sku, User: user, Request: request}
	err := r.scan(s.pool.QueryRow(ctx, sql("request_lookup"), campaign, sku, user, request))
	if errors.Is(err, pgx.ErrNoRows) {
		return RequestRow{}, ErrNoFence
	}
	if err == nil {
		err = s.readCarried(ctx, s.pool, &r)
	}
	return r, translate(err)
}

// scan reads a row of request_lookup.
func (r *RequestRow) scan(row pgx.Row) error {
	var admitted, expires *time.Time
	var age float64
	err := row.Scan(
		&r.MessagesFrom, &r.RaisedBuild.Fence, &r.RaisedBuild.Count, &r.Found,
		&r.Quantity, &r.Reservation, &r.Fingerprint, &r.Outcome, &r.Reason, &r.Build.Fence, &r.Build.Count, &admitted, &age,
		&r.Order, &r.OrderState, &r.ReservationState, &r.OrderReason, &r.OrderVersion, &expires)
	r.AdmittedAt, r.ExpiresAt, r.OutcomeAge = orZero(admitted), orZero(expires), time.Duration(age*float64(time.Second))
	return err
}

// scanWinner reads a row of direct_winner; without one the reservation lives in another cell, and is
// all that is known.
func (r *RequestRow) scanWinner(row pgx.Row) error {
	err := row.Scan(&r.Request, &r.SKU, &r.Quantity, &r.Order, &r.OrderState, &r.ReservationState, &r.OrderReason, &r.ExpiresAt,
		&r.Build.Fence, &r.Build.Count)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	r.Found, r.Outcome = true, Ordered
	return err
}

// maxList bounds every list of one user.
const maxList = 200

// ListRequests reads the newest attempts of a user's requests of one campaign, at most 200.
func (s *Store) ListRequests(ctx context.Context, campaign ids.CampaignID, user ids.UserID, limit int) ([]RequestRow, error) {
	rows, err := s.pool.Query(ctx, sql("request_list"), campaign, user, bounded(limit))
	if err != nil {
		return nil, translate(err)
	}
	out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (RequestRow, error) {
		r := RequestRow{Found: true, Campaign: campaign, User: user}
		var expires *time.Time
		err := row.Scan(&r.Request, &r.SKU, &r.Quantity, &r.Reservation, &r.Fingerprint, &r.Outcome, &r.Reason, &r.Build.Fence, &r.Build.Count,
			&r.AdmittedAt, &r.Order, &r.OrderState, &r.ReservationState, &r.OrderReason, &r.OrderVersion, &expires)
		r.ExpiresAt = orZero(expires)
		return r, err
	})
	return out, translate(err)
}

func bounded(limit int) int { return min(max(limit, 1), maxList) }

// Order is an order row with its reservation's state and its newest attempt's.
type Order struct {
	ID               ids.OrderID
	Reservation      ids.ReservationID
	Request          ids.RequestID
	Campaign         ids.CampaignID
	SKU              ids.SKUID
	User             ids.UserID
	Quantity         int32
	Amount, Currency string // of all units
	State            reservation.OrderState
	ReservationState reservation.ReservationState
	Reason           reservation.Reason
	Version          int64
	CreatedAt        time.Time
	ExpiresAt        time.Time
	PaidAt, ClosedAt time.Time    // zero: not
	PaymentState     PaymentState // empty: no attempt
}

// GetOrder reads an order of user; another user's is ErrNotFound.
func (s *Store) GetOrder(ctx context.Context, order ids.OrderID, user ids.UserID) (Order, error) {
	rows, err := s.pool.Query(ctx, sql("order_get"), order, user)
	if err != nil {
		return Order{}, translate(err)
	}
	o, err := pgx.CollectExactlyOneRow(rows, scanOrder)
	if errors.Is(err, pgx.ErrNoRows) {
		return Order{}, ErrNotFound
	}
	return o, translate(err)
}

// ListOrders reads a user's orders of this shard, newest first, at most 200.
func (s *Store) ListOrders(ctx context.Context, user ids.UserID, limit int) ([]Order, error) {
	rows, err := s.pool.Query(ctx, sql("order_list"), user, bounded(limit))
	if err != nil {
		return nil, translate(err)
	}
	out, err := pgx.CollectRows(rows, scanOrder)
	return out, translate(err)
}

func scanOrder(row pgx.CollectableRow) (Order, error) {
	var o Order
	var paid, closed *time.Time
	err := row.Scan(&o.ID, &o.Reservation, &o.Request, &o.Campaign, &o.SKU, &o.User, &o.Quantity, &o.Amount, &o.Currency,
		&o.State, &o.ReservationState, &o.Reason, &o.Version, &o.CreatedAt, &o.ExpiresAt, &paid, &closed, &o.PaymentState)
	o.PaidAt, o.ClosedAt = orZero(paid), orZero(closed)
	return o, err
}

// Buyer is who holds a user's place in a scope.
type Buyer struct {
	Carried     bool // the reservation lives in the cell that its id names
	Reservation ids.ReservationID
	Request     ids.RequestID          // empty when carried
	Order       ids.OrderID            // empty when carried
	State       reservation.OrderState // empty when carried
}

// BuyerOf reads a user's buyer row; ErrNotFound: the place is free.
func (s *Store) BuyerOf(ctx context.Context, campaign ids.CampaignID, scopeKey string, user ids.UserID) (Buyer, error) {
	var b Buyer
	var origin string
	err := s.pool.QueryRow(ctx, sql("buyer_of"), campaign, scopeKey, user).Scan(&origin, &b.Reservation, &b.Request, &b.Order, &b.State)
	if errors.Is(err, pgx.ErrNoRows) {
		return Buyer{}, ErrNotFound
	}
	b.Carried = origin == "CARRIED"
	return b, translate(err)
}
