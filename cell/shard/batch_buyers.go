package shard

import (
	"context"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/internal/ids"
)

// winner is who holds a user's place.
type winner struct {
	reservation ids.ReservationID
	request     ids.RequestID
}

// places are the arrays of the buyer statements.
type places struct {
	campaign, scope, user, reservation []string
}

func (r *batchRun) placesOf(messages []int) places {
	n := len(messages)
	p := places{make([]string, n), make([]string, n), make([]string, n), make([]string, n)}
	for j, i := range messages {
		m := &r.in.Messages[i]
		p.campaign[j], p.user[j], p.reservation[j] = string(m.Campaign), string(m.User), string(m.Reservation)
		p.scope[j] = r.facts.rules[skuKey{m.Campaign, m.SKU}].scopeKey(m.SKU)
	}
	return p
}

// takePlaces gives each candidate the user's place or names who has it. It answers those that have
// their place, in offset order, and reads the time that expires_at counts from.
func (r *batchRun) takePlaces(ctx context.Context, candidates []int) ([]int, error) {
	b := &pgx.Batch{}
	if len(candidates) > 0 {
		p := r.placesOf(candidates)
		b.Queue(sql("batch_buyers_take"), p.campaign, p.scope, p.user, p.reservation)
		b.Queue(sql(r.store.since4("batch_buyers_read", "batch_buyers_read_step3")), p.campaign, p.scope, p.user)
	}
	bounded := r.bounded(candidates)
	if len(bounded) > 0 {
		locks, counts := r.holdArgs(bounded)
		b.Queue(sql("batch_holds_lock"), locks...)
		b.Queue(sql("batch_holds_count"), counts...)
	}
	b.Queue(sql("batch_now"))
	taken := make([]int, 0, len(candidates))
	err := r.tx.send(ctx, b, func(res pgx.BatchResults) error {
		if len(candidates) > 0 {
			if _, err := res.Exec(); err != nil {
				return err
			}
			var err error
			if taken, err = r.readPlaces(res, candidates, taken); err != nil {
				return err
			}
		}
		if len(bounded) > 0 {
			if _, err := res.Exec(); err != nil {
				return err
			}
			if err := r.readHolds(res, bounded); err != nil {
				return err
			}
		}
		return res.QueryRow().Scan(&r.now)
	})
	slices.Sort(taken)
	return taken, err
}

func (r *batchRun) readPlaces(res pgx.BatchResults, candidates, taken []int) ([]int, error) {
	var j int32
	var origin string
	var w winner
	var order reservation.OrderState
	var state reservation.ReservationState
	seen := 0
	err := eachRow(res, []any{&j, &origin, &w.reservation, &w.request, &order, &state}, func() error {
		seen++
		i := candidates[j]
		if w.reservation == r.in.Messages[i].Reservation {
			taken = append(taken, i)
			return nil
		}
		reason := reservation.AlreadyReserved // a carried place: its cell knows more, and is asked by the reader
		if order != "" {
			life, err := reservation.LifeOf(order, state)
			if err != nil {
				return err
			}
			reason = reservation.BuyerReason(life)
		}
		r.out.Decisions[i] = Decision{Outcome: Rejected, Reason: reason, winner: w}
		return nil
	})
	if err != nil {
		return taken, err
	}
	return taken, exactly("buyer rows", int64(seen), len(candidates))
}

// dropArgs are the places of those who get no order, given up in key order.
func (r *batchRun) dropArgs() []any {
	lost := slices.Clone(r.gaveUp)
	slices.SortFunc(lost, func(a, b int) int {
		return strings.Compare(string(r.in.Messages[a].User), string(r.in.Messages[b].User))
	})
	p := r.placesOf(lost)
	return []any{p.campaign, p.scope, p.user, p.reservation}
}
