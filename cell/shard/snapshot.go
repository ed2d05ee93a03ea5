package shard

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/internal/ids"
)

// MirrorSnapshot is what a mirror is made from: build, stock, marks and answered requests, all from
// one REPEATABLE READ snapshot that stays open until Close. Marks and Requests are read in pages;
// one of them at a time.
type MirrorSnapshot struct {
	Build        ids.Build // raised when the snapshot was taken
	MessagesFrom int64
	Stocks       []MirrorStock

	store           *Store
	tx              pgx.Tx
	conn            interface{ Release() }
	campaign, scope string
}

// MirrorStock is one SKU's available units; Version is the base of the new mirror: stock effects at
// or below it are in the figure already.
type MirrorStock struct {
	SKU       ids.SKUID
	Available int32
	Version   int64
	// LastNumber of the adjustments under the shard's fence version; 0: none yet.
	LastNumber int64
}

// Mark is one buyer row.
type Mark struct {
	User        ids.UserID
	Reservation ids.ReservationID
	Carried     bool          // by a handover: the reservation lives in another cell
	Request     ids.RequestID // when carried: of the order there; the states are empty
	SKU         ids.SKUID
	Quantity    int32
	State       reservation.ReservationState
	OrderState  reservation.OrderState // empty: no order
}

// snapshotIdle bounds the silence of a snapshot between two pages: its reader writes to Redis.
const snapshotIdle = "30000"

// MirrorSnapshot opens a snapshot of a mirror's scope. The caller must Close it.
func (s *Store) MirrorSnapshot(ctx context.Context, campaign ids.CampaignID, scopeKey string) (*MirrorSnapshot, error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, errors.Join(ErrUnavailable, err)
	}
	begun, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		conn.Release()
		return nil, translate(err)
	}
	snap := &MirrorSnapshot{store: s, tx: begun, conn: conn, campaign: string(campaign), scope: scopeKey}
	if err := snap.readFacts(ctx); err != nil {
		snap.Close(ctx)
		return nil, translate(err)
	}
	return snap, nil
}

func (m *MirrorSnapshot) readFacts(ctx context.Context) error {
	if _, err := m.tx.Exec(ctx, "SET LOCAL idle_in_transaction_session_timeout = "+snapshotIdle); err != nil {
		return err
	}
	if _, err := m.store.hasCarried(ctx, m.tx); err != nil {
		return err
	}
	err := m.tx.QueryRow(ctx, sql("snapshot_facts"), m.campaign, m.scope).Scan(&m.MessagesFrom, &m.Build.Fence, &m.Build.Count)
	if err != nil {
		return err
	}
	rows, err := m.tx.Query(ctx, sql("snapshot_stocks"), m.campaign, m.scope)
	if err != nil {
		return err
	}
	m.Stocks, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (MirrorStock, error) {
		var st MirrorStock
		err := row.Scan(&st.SKU, &st.Available, &st.Version, &st.LastNumber)
		return st, err
	})
	return err
}

// Close ends the snapshot; calling it again does nothing.
func (m *MirrorSnapshot) Close(ctx context.Context) {
	if m.tx == nil {
		return
	}
	_ = rolledBack(ctx, m.tx, nil)
	m.conn.Release()
	m.tx = nil
}

// Marks yields every buyer of the scope, then an error if the reading failed.
func (m *MirrorSnapshot) Marks(ctx context.Context) iter.Seq2[Mark, error] {
	return paged(ctx, m, m.store.since4("snapshot_marks", "snapshot_marks_step3"), "snapshot_fetch_marks", func(row pgx.CollectableRow) (Mark, error) {
		var k Mark
		var origin string
		err := row.Scan(&k.User, &k.Reservation, &origin, &k.Request, &k.SKU, &k.Quantity, &k.State, &k.OrderState)
		k.Carried = origin == "CARRIED"
		return k, err
	})
}

// Requests yields every request of the scope that has an outcome, rejected ones too, then an error
// if the reading failed. A request may appear under several builds, the lowest first; the last one
// is its present attempt.
func (m *MirrorSnapshot) Requests(ctx context.Context) iter.Seq2[RequestRow, error] {
	return paged(ctx, m, "snapshot_requests", "snapshot_fetch_requests", func(row pgx.CollectableRow) (RequestRow, error) {
		r := RequestRow{Found: true, RaisedBuild: m.Build, MessagesFrom: m.MessagesFrom}
		var expires *time.Time
		err := row.Scan(&r.Request, &r.Campaign, &r.SKU, &r.User, &r.Quantity, &r.Reservation, &r.Fingerprint, &r.Outcome, &r.Reason,
			&r.Build.Fence, &r.Build.Count, &r.AdmittedAt,
			&r.Order, &r.OrderState, &r.ReservationState, &r.OrderReason, &r.OrderVersion, &expires)
		r.ExpiresAt = orZero(expires)
		return r, err
	})
}

func paged[T any](ctx context.Context, m *MirrorSnapshot, declare, fetch string, scan pgx.RowToFunc[T]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		if _, err := m.tx.Exec(ctx, sql(declare), pgx.QueryExecModeExec, m.campaign, m.scope); err != nil {
			yield(none, translate(err))
			return
		}
		for {
			rows, err := m.tx.Query(ctx, sql(fetch), pgx.QueryExecModeExec)
			if err != nil {
				yield(none, translate(err))
				return
			}
			page, err := pgx.CollectRows(rows, scan)
			if err != nil {
				yield(none, translate(err))
				return
			}
			for _, v := range page {
				if !yield(v, nil) {
					return
				}
			}
			if len(page) == 0 {
				return
			}
		}
	}
}

func orZero(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}
