package shard

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/internal/ids"
)

// orderChange is one order row to be changed by compare-and-set.
type orderChange struct {
	*held            // as it will be
	was        Order // as it was locked
	reason     reservation.Reason
	closeAfter time.Time
	park       bool
}

type restock struct {
	*held
	refund string
	unless []string // refunds; where one of them returned the units before, nothing is returned
}

// stepWrites collects what a transaction of steps will write.
type stepWrites struct {
	changes  []orderChange
	restocks []restock
	payments [6][]string // order, payment, amount, currency, state, refund
	refusals [7][]string // digest, payment, order, amount, currency, status, cause
	refunds  []refundRow // asked for or ended
	kicks    []string    // refunds to be asked of the channel at once
}

func (w *stepWrites) pay(o *held, payment ids.PaymentID, m reservation.Money, state PaymentState, refund string) {
	for i, v := range []string{string(o.ID), string(payment), m.Amount(), m.Currency, string(state), refund} {
		w.payments[i] = append(w.payments[i], v)
	}
}

// refuse records a callback that is refused; its digest makes a repeat the same record.
func (w *stepWrites) refuse(s *Step, cause string) {
	fields := []string{string(s.Payment), string(s.Order), s.Amount.Amount(), s.Amount.Currency, string(s.Kind), cause}
	sum := sha256.Sum256([]byte(strings.Join(fields, "\x00")))
	for i, v := range append([]string{hex.EncodeToString(sum[:])}, fields...) {
		w.refusals[i] = append(w.refusals[i], v)
	}
}

// write carries the steps out: stock rows locked in order, then everything in one round trip.
func (r *stepRun) write(ctx context.Context) error {
	if err := r.keepRestocks(ctx); err != nil {
		return err
	}
	m := r.moves()
	versions, err := r.tx.lockStocks(ctx, m)
	if err != nil {
		return err
	}
	b := &pgx.Batch{}
	var checks []written
	queue := func(what string, want int, name string, args ...any) {
		if want > 0 {
			b.Queue(sql(name), args...)
			checks = append(checks, written{what, want})
		}
	}
	queue("order changes", len(r.out.changes), "step_orders_write", r.orderArgs()...)
	states, args := r.reservationArgs()
	queue("reservation changes", states, "step_reservations_write", args...)
	queue("payments", len(r.out.payments[0]), "step_payments_write", anys(r.out.payments[:])...)
	if r.store.keepsRefunds { // before the ledger, which looks a RESTOCK's tokens up by its refund
		queue("refunds", len(r.out.refunds), "step_refunds_write", r.refundArgs()...)
	}
	queue("ledger entries", len(m), "stock_move", m.args(r.tx.writer.FenceVersion, r.source, r.actor)...)
	out := append(r.effects(m, versions), r.refundEvents()...)
	maps.Copy(r.tx.marks, versions)
	rows, err := outArgs(out)
	if err != nil {
		return err
	}
	queue("outbox rows", len(out), "outbox_insert", rows...)
	if len(r.out.refusals[0]) > 0 { // a repeat writes none, so its count says nothing
		if _, err := r.tx.Exec(ctx, sql("step_refusals_write"), anys(r.out.refusals[:])...); err != nil {
			return err
		}
	}
	if len(r.out.kicks) > 0 { // one that has ended meanwhile is left alone
		if _, err := r.tx.Exec(ctx, sql("refunds_kick"), r.out.kicks); err != nil {
			return err
		}
	}
	if len(checks) == 0 {
		return nil
	}
	return r.tx.sendCounted(ctx, b, checks)
}

func anys(columns [][]string) []any {
	out := make([]any, len(columns))
	for i, c := range columns {
		out[i] = c
	}
	return out
}

// keepRestocks drops those whose campaign says that a refunded unit stays sold, or was cancelled
// (nothing is sold there any more), and those that were done before: the order's lock is held.
func (r *stepRun) keepRestocks(ctx context.Context) error {
	var err error
	r.out.restocks = slices.DeleteFunc(r.out.restocks, func(x restock) bool {
		if !x.rules.restock || x.rules.cancelled {
			return true
		}
		var done bool
		if len(x.unless) > 0 && err == nil {
			err = r.tx.QueryRow(ctx, sql("restocked_before"), x.Campaign, x.SKU, x.unless).Scan(&done)
		}
		return done
	})
	return err
}

// moves are the ledger entries of the changes, in the order of the changes.
func (r *stepRun) moves() moves {
	var m moves
	for _, c := range r.out.changes {
		e := move{campaign: c.Campaign, sku: c.SKU, businessNo: string(c.Reservation), reserved: -c.Quantity}
		switch c.State {
		case c.was.State:
			continue
		case reservation.OrderPaid:
			e.action, e.confirmed = actionConfirm, c.Quantity
		case reservation.OrderClosed:
			e.action, e.available, e.released = actionRelease, c.Quantity, c.Quantity
		default: // PENDING_PAYMENT: neither end was reached
		}
		m = append(m, e)
	}
	for _, x := range r.out.restocks {
		m = append(m, move{campaign: x.Campaign, sku: x.SKU, action: actionRestock, businessNo: x.refund, available: x.Quantity, confirmed: -x.Quantity})
	}
	return m
}

// lockStocks locks the rows of the moves in order and answers their versions.
func (t tx) lockStocks(ctx context.Context, m moves) (map[skuKey]int64, error) {
	versions := map[skuKey]int64{}
	if len(m) == 0 {
		return versions, nil
	}
	var keys []skuKey
	for _, e := range m {
		if k := (skuKey{e.campaign, e.sku}); !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	campaigns, skus := make([]string, len(keys)), make([]string, len(keys))
	for i, k := range keys {
		campaigns[i], skus[i] = string(k.campaign), string(k.sku)
	}
	rows, err := t.Query(ctx, sql("batch_lock_stock"), campaigns, skus)
	if err != nil {
		return nil, err
	}
	var k skuKey
	var available int32
	var version int64
	_, err = pgx.ForEachRow(rows, []any{&k.campaign, &k.sku, &available, &version}, func() error {
		versions[k] = version
		return nil
	})
	return versions, err
}

func (r *stepRun) orderArgs() []any {
	n := len(r.out.changes)
	id, was, state, reason := make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	version, after, park := make([]int64, n), make([]time.Time, n), make([]bool, n)
	var now time.Time
	for i, c := range r.out.changes {
		id[i], version[i], was[i], state[i] = string(c.ID), c.was.Version, string(c.was.State), string(c.State)
		reason[i], after[i], park[i] = string(c.reason), c.closeAfter, c.park
		now = later(now, c.now)
	}
	return []any{id, version, was, state, reason, after, park, now}
}

// reservationArgs are the reservations whose state changes.
func (r *stepRun) reservationArgs() (int, []any) {
	var id, was, state, reason []string
	for _, c := range r.out.changes {
		if c.ReservationState == c.was.ReservationState {
			continue
		}
		id, was = append(id, string(c.Reservation)), append(was, string(c.was.ReservationState))
		state, reason = append(state, string(c.ReservationState)), append(reason, string(c.reason))
	}
	return len(id), []any{id, was, state, reason}
}
