package shard

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/cellquota/cellquota/internal/ids"
)

// Effects are all effects for the mirror that one reservation's outcome and order left, in order.
type Effects struct {
	Payloads [][]byte  // events.v1.MirrorEffect each
	Pending  bool      // one of them has not left yet
	Build    ids.Build // raised for the mirror, in the same snapshot; zero: none
}

// EffectsOf reads the effects of a reservation; none: the shard has no outcome for it, or they were
// pruned.
func (s *Store) EffectsOf(ctx context.Context, id ids.ReservationID) (Effects, error) {
	rows, err := s.pool.Query(ctx, sql("outbox_of"), requestAggregate(id))
	if err != nil {
		return Effects{}, translate(err)
	}
	var out Effects
	_, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (struct{}, error) {
		var payload []byte
		var pending bool
		err := row.Scan(&payload, &pending, &out.Build.Fence, &out.Build.Count)
		out.Payloads, out.Pending = append(out.Payloads, payload), out.Pending || pending
		return struct{}{}, err
	})
	return out, translate(err)
}
