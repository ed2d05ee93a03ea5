package shard

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"

	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/telemetry"
)

// Outbox targets.
const (
	targetMirror = "MIRROR" // payload is events.v1.MirrorEffect
	targetEvents = "EVENTS" // payload is an event for cellquota.events
)

// OutboxRow is one effect or event that must leave the shard, at least once.
type OutboxRow struct {
	ID          int64
	Aggregate   string // rows of one aggregate leave in order of ID
	EventType   string
	CampaignID  ids.CampaignID
	SKUID       ids.SKUID
	Payload     []byte
	Traceparent string
	Attempts    int32 // this claim included
	// MirrorBuild is the build raised for the row's mirror, read with the claim; zero: none. A
	// mirror of another build refuses the effect, and the row is claimed again.
	MirrorBuild ids.Build
	// ScopeKey names the row's mirror within its campaign: the SKU, or WholeCampaign.
	ScopeKey string
}

// outRow is an outbox row to be.
type outRow struct {
	target, aggregate, eventType string
	campaign                     ids.CampaignID
	sku                          ids.SKUID
	payload                      proto.Message
	traceparent                  string
}

// outArgs renders the arrays of outbox_insert.
func outArgs(rows []outRow) ([]any, error) {
	n := len(rows)
	target, aggregate, kind := make([]string, n), make([]string, n), make([]string, n)
	campaign, sku, trace, payload := make([]string, n), make([]string, n), make([]string, n), make([][]byte, n)
	for i, r := range rows {
		raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(r.payload)
		if err != nil {
			return nil, fmt.Errorf("%w: payload of %s %s: %w", ErrBadData, r.eventType, r.aggregate, err)
		}
		target[i], aggregate[i], kind[i], payload[i] = r.target, r.aggregate, r.eventType, raw
		campaign[i], sku[i], trace[i] = string(r.campaign), string(r.sku), r.traceparent
	}
	return []any{target, aggregate, kind, campaign, sku, payload, trace}, nil
}

// leave writes outbox rows in the transaction of the change they tell of.
func (t tx) leave(ctx context.Context, rows []outRow) error {
	if len(rows) == 0 {
		return nil
	}
	args, err := outArgs(rows)
	if err != nil {
		return err
	}
	tag, err := t.Exec(ctx, sql("outbox_insert"), args...)
	if err != nil {
		return err
	}
	return exactly("outbox rows", tag.RowsAffected(), len(rows))
}

// ClaimOutbox claims up to limit pending rows of target for owner until the lease ends, oldest
// first, by the database's clock. A row never overtakes an earlier one of its aggregate that another
// owner holds. An owner that claims again gets its own unfinished rows again.
func (s *Store) ClaimOutbox(ctx context.Context, target string, limit int, owner string, lease time.Duration) ([]OutboxRow, error) {
	query, err := s.outboxQuery(ctx, "outbox_claim")
	if err != nil {
		return nil, err
	}
	var out []OutboxRow
	err = s.inTx(ctx, "claim_outbox", needSettle, func(ctx context.Context, t tx) error {
		rows, err := t.Query(ctx, query, target, limit, owner, lease.Seconds())
		if err != nil {
			return err
		}
		out, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (OutboxRow, error) {
			var r OutboxRow
			err := row.Scan(&r.ID, &r.Aggregate, &r.EventType, &r.CampaignID, &r.SKUID, &r.Payload, &r.Traceparent, &r.Attempts,
				&r.MirrorBuild.Fence, &r.MirrorBuild.Count, &r.ScopeKey)
			return r, err
		})
		return err
	})
	return out, err
}

// outboxQuery is a statement that looks at the rows of an aggregate, as the schema's indexes want it.
func (s *Store) outboxQuery(ctx context.Context, name string) (string, error) {
	known, err := s.atTokensStep(ctx)
	if !known {
		name += "_step2"
	}
	return sql(name), err
}

// MarkPublished records that rows of owner's claim have left. Rows that another owner claimed
// meanwhile are left to it.
func (s *Store) MarkPublished(ctx context.Context, owner string, rows []int64) error {
	return s.outboxVerb(ctx, "mark_published", "outbox_published", rows, owner)
}

// ReleaseOutbox gives rows of owner's claim back at once, to be claimed again.
func (s *Store) ReleaseOutbox(ctx context.Context, owner string, rows []int64) error {
	return s.outboxVerb(ctx, "release_outbox", "outbox_release", rows, owner)
}

// DeferOutbox gives rows of owner's claim back, to be claimed by anyone after pause: their receiver
// cannot take them yet, and they must not keep others from leaving.
func (s *Store) DeferOutbox(ctx context.Context, owner string, rows []int64, pause time.Duration) error {
	if len(rows) == 0 {
		return nil
	}
	query, err := s.outboxQuery(ctx, "outbox_defer")
	if err != nil {
		return err
	}
	return s.inTx(ctx, "defer_outbox", needSettle, func(ctx context.Context, t tx) error {
		_, err := t.Exec(ctx, query, rows, owner, pause.Seconds())
		return err
	})
}

func (s *Store) outboxVerb(ctx context.Context, verb, query string, rows []int64, owner string) error {
	if len(rows) == 0 {
		return nil
	}
	return s.inTx(ctx, verb, needSettle, func(ctx context.Context, t tx) error {
		_, err := t.Exec(ctx, sql(query), rows, owner)
		return err
	})
}

// ParkOutbox takes one row that cannot be published out of the way of the rest. cause is for the
// log, which is what the alert hangs on.
func (s *Store) ParkOutbox(ctx context.Context, owner string, row int64, cause error) error {
	err := s.inTx(ctx, "park_outbox", needSettle, func(ctx context.Context, t tx) error {
		tag, err := t.Exec(ctx, sql("outbox_park"), row, owner)
		if err == nil && tag.RowsAffected() == 0 {
			return fmt.Errorf("%w: outbox row %d is not claimed by %s", ErrConflict, row, owner)
		}
		return err
	})
	if err == nil {
		s.log.Error("outbox row parked", telemetry.Event, "outbox_parked", "outbox_id", row, telemetry.Error, cause)
	}
	return err
}

// OutboxLag is the age of the oldest pending row by the database's clock, and how many are pending.
func (s *Store) OutboxLag(ctx context.Context) (oldest time.Duration, count int64, err error) {
	var seconds float64
	err = s.pool.QueryRow(ctx, sql("outbox_lag")).Scan(&seconds, &count)
	return time.Duration(seconds * float64(time.Second)), count, translate(err)
}
