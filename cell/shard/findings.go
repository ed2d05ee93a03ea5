package shard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/telemetry"
)

// FindingKind is what differs between the ledgers (contract, section 8).
type FindingKind string

// The kinds.
const (
	TakenWithoutEvent       FindingKind = "TAKEN_WITHOUT_EVENT"
	EventWithoutReservation FindingKind = "EVENT_WITHOUT_RESERVATION"
	ReservationWithoutOrder FindingKind = "RESERVATION_WITHOUT_ORDER"
	ClosedWithoutReturn     FindingKind = "CLOSED_WITHOUT_RETURN"
	OrphanBuyerMark         FindingKind = "ORPHAN_BUYER_MARK"
	QuantityMismatch        FindingKind = "QUANTITY_MISMATCH"
	StateMismatch           FindingKind = "STATE_MISMATCH"
	DuplicateAction         FindingKind = "DUPLICATE_ACTION"
	MissingAction           FindingKind = "MISSING_ACTION"
	Overdue                 FindingKind = "OVERDUE"
)

// FindingKinds lists every kind.
func FindingKinds() []FindingKind {
	return []FindingKind{
		TakenWithoutEvent, EventWithoutReservation, ReservationWithoutOrder, ClosedWithoutReturn, OrphanBuyerMark,
		QuantityMismatch, StateMismatch, DuplicateAction, MissingAction, Overdue,
	}
}

// Freezes tells whether a finding of this kind says that stock is not what it should be: while it is
// open, nothing moves units of its SKU in this cell by itself.
func (k FindingKind) Freezes() bool {
	return k == QuantityMismatch || k == DuplicateAction || k == MissingAction
}

// FindingState is where a finding stands (seams, Words).
type FindingState string

// The states.
const (
	FindingOpen     FindingState = "OPEN"          // the cell repairs it by itself
	FindingProposed FindingState = "PROPOSED"      // a person must say so
	FindingRepaired FindingState = "REPAIRED"      // the ledgers agree again
	FindingReview   FindingState = "MANUAL_REVIEW" // left by a person's repair only
)

// RepairAction is what can be done about a finding; "": a person must find out.
type RepairAction string

// The actions. Each adds rows and is idempotent by the ids of what it is about.
const (
	ActRepublish RepairAction = "republish"
	ActReturn    RepairAction = "return"
	ActTombstone RepairAction = "tombstone"
	ActReverse   RepairAction = "reverse"
	ActRelease   RepairAction = "release"
)

// Finding is one difference, with the ids of what it is about.
type Finding struct {
	ID          string // made from what it is about
	Kind        FindingKind
	Campaign    ids.CampaignID
	SKU         ids.SKUID
	User        ids.UserID
	Request     ids.RequestID
	Event       string
	Reservation ids.ReservationID
	Order       ids.OrderID
	Entry       int64 // the ledger entry that is one too many; 0: none
	Units       int32
	State       FindingState
	Action      RepairAction
	Detail      string

	// As its row has them.
	Owner   string
	Tries   int
	FoundAt time.Time
	Due     bool          // the next automatic repair may be tried
	Trying  time.Duration // since the first one
	Gone    bool          // the last comparison of everything did not meet it
}

// Walk is how far the comparison of this cell is.
type Walk struct {
	Cursor ids.ReservationID // compared up to here in this cycle
	Cycle  int64             // cycles that ended
}

// ClaimReconcile makes owner the one that compares until the lease ends by the database's clock; ErrBusy
// while another one is. Nothing is held between two calls.
func (s *Store) ClaimReconcile(ctx context.Context, owner string, lease time.Duration) (Walk, error) {
	var w Walk
	err := s.inTx(ctx, "claim_reconcile", needSettle, func(ctx context.Context, t tx) error {
		err := t.QueryRow(ctx, sql("reconcile_claim"), owner, lease.Seconds()).Scan(&w.Cursor, &w.Cycle)
		if errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("%w: another process compares the ledgers", ErrBusy)
		}
		return err
	})
	return w, err
}

// AdvanceReconcile records how far owner came; ended closes a cycle, which took so long. ErrBusy: it is another's walk now.
func (s *Store) AdvanceReconcile(ctx context.Context, owner string, cursor ids.ReservationID, ended bool, took time.Duration) error {
	return s.inTx(ctx, "advance_reconcile", needSettle, func(ctx context.Context, t tx) error {
		tag, err := t.Exec(ctx, sql("reconcile_advance"), owner, cursor, ended, took.Seconds())
		if err == nil && tag.RowsAffected() == 0 {
			return fmt.Errorf("%w: another process compares the ledgers", ErrBusy)
		}
		return err
	})
}

// ReleaseReconcile ends owner's claim early; one that is another's stays.
func (s *Store) ReleaseReconcile(ctx context.Context, owner string) error {
	return s.inTx(ctx, "release_reconcile", needSettle, func(ctx context.Context, t tx) error {
		_, err := t.Exec(ctx, sql("reconcile_release"), owner)
		return err
	})
}

// ReconcileRun is a full comparison that somebody asked for.
type ReconcileRun struct {
	ID        string
	Campaign  ids.CampaignID // "": all
	Actor     string
	AskedAt   time.Time
	StartedAt time.Time // zero: not yet
	EndedAt   time.Time // zero: not yet
	Requests  int64
	Found     int
	Detail    string // what could not be compared
}

// AskRun records that a run is wanted, or finds the one of that id.
func (s *Store) AskRun(ctx context.Context, r ReconcileRun, reason string) (out ReconcileRun, err error) {
	err = s.inTx(ctx, "ask_run", needSettle, func(ctx context.Context, t tx) error {
		if _, err := t.Exec(ctx, sql("reconcile_run_ask"), r.ID, r.Campaign, r.Actor, reason); err != nil {
			return err // a repeat inserts none
		}
		rows, err := t.Query(ctx, sql("reconcile_run_read"), r.ID)
		if err != nil {
			return err
		}
		out, err = pgx.CollectExactlyOneRow(rows, scanRun)
		return err
	})
	if err == nil && out.Campaign != r.Campaign {
		return out, fmt.Errorf("%w: run %s is about campaign %q", ErrConflict, r.ID, out.Campaign)
	}
	return out, err
}

// NextRun is the oldest run that has not ended; false: none.
func (s *Store) NextRun(ctx context.Context) (ReconcileRun, bool, error) {
	runs, err := read(ctx, s.pool, scanRun, "reconcile_run_next")
	if err != nil || len(runs) == 0 {
		return ReconcileRun{}, false, err
	}
	return runs[0], true, nil
}

// BeginRun and EndRun record a run's times; a repeat after its end changes nothing.
func (s *Store) BeginRun(ctx context.Context, id string) error {
	return s.one(ctx, "begin_run", "reconcile_run_begin", id)
}

// EndRun records what a run found.
func (s *Store) EndRun(ctx context.Context, r ReconcileRun) error {
	return s.one(ctx, "end_run", "reconcile_run_end", r.ID, r.Requests, r.Found, r.Detail)
}

// one is a verb of one statement that may find nothing to change.
func (s *Store) one(ctx context.Context, verb, query string, args ...any) error {
	return s.inTx(ctx, verb, needSettle, func(ctx context.Context, t tx) error {
		_, err := t.Exec(ctx, sql(query), args...)
		return err
	})
}

// RecordFinding keeps a difference that was seen twice. The same one again is the same row; fresh tells
// that it is new, or was repaired before. A quantity finding keeps the scene: stock row, ledger range,
// states, positions, and what the mirror says (any value that JSON can hold; nil: it was not asked).
func (s *Store) RecordFinding(ctx context.Context, f Finding, mirror any) (fresh bool, err error) {
	err = s.inTx(ctx, "record_finding", needSettle, func(ctx context.Context, t tx) error {
		var scene []byte
		if f.Kind.Freezes() {
			said, err := json.Marshal(mirror)
			if err != nil {
				return fmt.Errorf("%w: %w", ErrInvalid, err)
			}
			if err := t.QueryRow(ctx, sql("finding_scene"), f.Campaign, f.SKU, f.Reservation, string(said)).Scan(&scene); err != nil {
				return err
			}
		}
		return t.QueryRow(ctx, sql("finding_record"), f.ID, f.Kind, f.Campaign, f.SKU, f.User, f.Request, f.Event, f.Reservation, f.Order, f.Entry, f.Units,
			f.State, f.Action, f.Detail, scene).Scan(&fresh)
	})
	if err == nil && fresh {
		s.log.Warn("the ledgers differ", telemetry.Event, "finding", "kind", string(f.Kind), "finding_id", f.ID, telemetry.CampaignID, f.Campaign, telemetry.SKUID, f.SKU,
			telemetry.RequestID, f.Request, telemetry.EventID, f.Event, telemetry.ReservationID, f.Reservation, telemetry.OrderID, f.Order,
			telemetry.NewState, string(f.State), "action", string(f.Action), "units", f.Units, "detail", f.Detail)
	}
	return fresh, err
}

// MetFinding notes that an open finding was met again; known is false when there is none of that id, and
// nothing is written.
func (s *Store) MetFinding(ctx context.Context, id string) (known bool, err error) {
	err = s.inTx(ctx, "met_finding", needSettle, func(ctx context.Context, t tx) error {
		tag, err := t.Exec(ctx, sql("finding_met"), id)
		known = err == nil && tag.RowsAffected() == 1
		return err
	})
	return known, err
}

// OpenFindings reads up to limit findings that are not repaired, the longest unlooked first.
func (s *Store) OpenFindings(ctx context.Context, limit int) ([]Finding, error) {
	return read(ctx, s.pool, scanFinding, "finding_open", limit)
}

// Finding reads one; ErrNotFound.
func (s *Store) Finding(ctx context.Context, id string) (Finding, error) {
	list, err := read(ctx, s.pool, scanFinding, "finding_read", id)
	if err == nil && len(list) == 0 {
		return Finding{}, fmt.Errorf("%w: finding %s", ErrNotFound, id)
	}
	if err != nil {
		return Finding{}, err
	}
	return list[0], nil
}

// LookedFindings notes that findings were looked at again and are still there.
func (s *Store) LookedFindings(ctx context.Context, list []string) error {
	return s.one(ctx, "looked_findings", "finding_looked", list)
}

// FindingCount counts open findings of one kind and state.
type FindingCount struct {
	Kind  FindingKind
	State FindingState
	N     int64
}

// FindingCounts counts what is not repaired.
func (s *Store) FindingCounts(ctx context.Context) ([]FindingCount, error) {
	return read(ctx, s.pool, func(row pgx.CollectableRow) (FindingCount, error) {
		var c FindingCount
		err := row.Scan(&c.Kind, &c.State, &c.N)
		return c, err
	}, "finding_counts")
}

// FrozenBy names a finding that holds a SKU; "": nothing does.
func (s *Store) FrozenBy(ctx context.Context, campaign ids.CampaignID, sku ids.SKUID) (string, error) {
	list, err := read(ctx, s.pool, pgx.RowTo[string], "finding_frozen", campaign, sku)
	if err != nil || len(list) == 0 {
		return "", err
	}
	return list[0], nil
}

func scanFinding(row pgx.CollectableRow) (Finding, error) {
	var f Finding
	var trying float64
	err := row.Scan(&f.ID, &f.Kind, &f.Campaign, &f.SKU, &f.User, &f.Request, &f.Event, &f.Reservation, &f.Order, &f.Entry, &f.Units, &f.State, &f.Action,
		&f.Detail, &f.Owner, &f.Tries, &f.FoundAt, &f.Due, &trying, &f.Gone)
	f.Trying = time.Duration(trying * float64(time.Second))
	return f, err
}

func scanRun(row pgx.CollectableRow) (ReconcileRun, error) {
	var r ReconcileRun
	var started, ended *time.Time
	err := row.Scan(&r.ID, &r.Campaign, &r.Actor, &r.AskedAt, &started, &ended, &r.Requests, &r.Found, &r.Detail)
	r.StartedAt, r.EndedAt = orZero(started), orZero(ended)
	return r, err
}
