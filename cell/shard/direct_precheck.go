package shard

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/cellquota/cellquota/cell/homes"
	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/internal/ids"
)

// PrecheckDirect tells what stands against first attempts beside time and stock: DirectMoved,
// DirectHeld or DirectClear. Nothing is written; of an ask it reads campaign, SKU, user and domain.
func (s *Store) PrecheckDirect(ctx context.Context, asks []DirectAsk) ([]DirectResult, error) {
	owned := map[ids.CampaignID]homes.Table{}
	out := make([]DirectResult, len(asks))
	campaigns, skus, users := make([]string, len(asks)), make([]string, len(asks)), make([]string, len(asks))
	for i, a := range asks {
		campaigns[i], skus[i], users[i] = string(a.Campaign), string(a.SKU), string(a.User)
		table, read := owned[a.Campaign]
		if !read {
			var err error
			if table, err = s.Buckets(ctx, a.Campaign); err != nil {
				return nil, err
			}
			owned[a.Campaign] = table
		}
		out[i].Outcome = DirectClear
		if !table.Owns(a.Domain, a.User) {
			out[i].Outcome = DirectMoved
		}
	}
	rows, err := s.pool.Query(ctx, sql("direct_precheck"), campaigns, skus, users)
	if err != nil {
		return nil, translate(err)
	}
	var n int32
	var holder ids.ReservationID
	_, err = pgx.ForEachRow(rows, []any{&n, &holder}, func() error {
		if out[n].Outcome == DirectClear && holder != "" {
			out[n].Outcome, out[n].Row = DirectHeld, RequestRow{Campaign: asks[n].Campaign, User: asks[n].User, Reservation: holder}
		}
		return nil
	})
	if err != nil {
		return nil, translate(err)
	}
	return out, s.readHolders(ctx, out)
}

// readHolders completes the requests of whoever holds a place.
func (s *Store) readHolders(ctx context.Context, results []DirectResult) error {
	for i := range results {
		r := &results[i]
		if r.Outcome != DirectHeld {
			continue
		}
		if err := r.Row.scanWinner(s.pool.QueryRow(ctx, sql("direct_winner"), r.Row.Reservation)); err != nil {
			return translate(err)
		}
		r.Reason = heldReason(r.Row)
	}
	return nil
}

// heldReason says how the order of a place stands; a carried place counts as payable.
func heldReason(row RequestRow) reservation.Reason {
	if !row.Found {
		return reservation.AlreadyReserved
	}
	life, err := reservation.LifeOf(row.OrderState, row.ReservationState)
	if err != nil {
		return reservation.AlreadyReserved
	}
	return reservation.BuyerReason(life)
}
