package shard

import (
	"context"
	"time"
)

// Now is the database's clock, by which orders expire.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	var at time.Time
	err := s.pool.QueryRow(ctx, sql("shard_now")).Scan(&at)
	return at, translate(err)
}
