package fencer

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/jackc/pgx/v5/pgconn"
)

var (
	// ErrUnreachable: no answer from the shard, nothing was written. The cell stays FENCING; try again.
	ErrUnreachable = errors.New("the shard cannot be reached")
	// ErrUnknownOutcome: the transaction may have committed. Repeat the same call: it tells.
	ErrUnknownOutcome = errors.New("the outcome in the shard is not known; repeat the call")
	// ErrVersionRefused: the shard is at this version or above. Never repaired by a retry.
	ErrVersionRefused = errors.New("the shard refuses the fence version")
	// ErrStateRefused: the fence row's state does not allow the verb (restore before fence, say).
	ErrStateRefused = errors.New("the fence row's state does not allow it")
	// ErrOtherCell: the shard has no fence row of this cell, or another group's.
	ErrOtherCell = errors.New("the shard belongs to another cell or group, or to none")
	// ErrTermRefused: the shard knows a higher term, or another id of the same count.
	ErrTermRefused = errors.New("the shard refuses the term")
	// ErrWriters: writers held the shard although their backends were ended; try again.
	ErrWriters = errors.New("writers still hold the shard")
	// ErrMove: a handover's own words make no sense. A caller's defect.
	ErrMove = errors.New("no such handover can be")
	// ErrRouteVersion: these buckets were moved by this route version or a later one.
	ErrRouteVersion = errors.New("the shard refuses the route version")
	// ErrBuckets: the buckets are not in the state that the step needs, or a page does not follow the last.
	ErrBuckets = errors.New("the buckets' state does not allow it")
	// ErrNoRules: the shard does not know the campaign yet; its cell is told of it when it registers.
	ErrNoRules = errors.New("the shard does not know the campaign yet")
	// ErrEntries: entry is not closed yet, or the named winners are not the entries that the shard has.
	ErrEntries = errors.New("the entries' state does not allow it")
	// ErrTwoOrders: one user has orders in two shards (I4 is broken). Never repaired by a retry.
	ErrTwoOrders = errors.New("one user has orders in two shards")
)

// byState maps the fence functions' own SQLSTATEs (documented in the migration).
var byState = map[string]error{
	"CQ001": ErrVersionRefused, "CQ002": ErrStateRefused, "CQ003": ErrOtherCell, "CQ004": ErrOtherCell,
	"CQ005": ErrTermRefused, "CQ006": ErrTermRefused, "CQ008": ErrWriters,
	"CQ013": ErrNoRules,
	"CQ015": ErrEntries,
	"CQ010": ErrTwoOrders, "CQ011": ErrRouteVersion, "CQ012": ErrBuckets,
}

// translate gives a driver's error one of this package's names. committing: the error came from
// COMMIT, so the server may have done it.
func translate(verb string, err error, committing bool) error {
	if err == nil {
		return nil
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		if named, ok := byState[pg.Code]; ok {
			return fmt.Errorf("%s: %s: %w", verb, pg.Message, named)
		}
		if !committing && (pg.Code[:2] == "57" || pg.Code[:2] == "08" || pg.Code[:2] == "53") {
			return fmt.Errorf("%s: %s: %w", verb, pg.Message, ErrUnreachable)
		}
	}
	if committing {
		return fmt.Errorf("%s: %w: %w", verb, err, ErrUnknownOutcome)
	}
	var network net.Error
	var connect *pgconn.ConnectError
	if errors.As(err, &network) || errors.As(err, &connect) || pgconn.Timeout(err) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s: %w: %w", verb, err, ErrUnreachable)
	}
	return fmt.Errorf("%s: %w", verb, err)
}
