package shard

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// The sentinels of this package. Each names what the caller may do.
var (
	// ErrNoWriter: this process holds no fence version. Register, then SetWriter.
	ErrNoWriter = errors.New("this process may not write: it holds no fence version")
	// ErrFenced: the shard is at another fence version or belongs to another group. Nothing was
	// written; the store has dropped its writer; register again.
	ErrFenced = errors.New("fenced: the shard no longer takes this writer")
	// ErrState: the fence's state refuses the verb (settle-only); nothing was written. Wait.
	ErrState = errors.New("the fence's state refuses this verb")
	// ErrNoFence: the shard has no fence row: provision the cell.
	ErrNoFence = errors.New("the shard has no fence row")
	// ErrTermLower: the order comes from a control-plane leader that is no longer the newest, or
	// whose term is known under another id. Nothing was written.
	ErrTermLower = errors.New("the term is not the shard's newest")
	// ErrUnknownCommit: the commit may have happened. Call the verb again with the same ids.
	ErrUnknownCommit = errors.New("commit outcome unknown: may have happened")
	// ErrUnavailable: nothing was committed; try again later.
	ErrUnavailable = errors.New("the shard is unavailable")
	// ErrPositionLost: another consumer moved the position; drop the batch and seek the stored one.
	ErrPositionLost = errors.New("the position was moved by another consumer")
	// ErrPositionMismatch: the stored position is not of this topic, log or epoch.
	ErrPositionMismatch = errors.New("the stored position does not belong to this log")
	// ErrShardBehind: a message is of a fence version or build that this shard never gave out: it
	// went back in time. Nothing is written until the control plane has recovered it.
	ErrShardBehind = errors.New("the shard is behind what it once gave out")
	// ErrNotFound: no such row, or not for this user.
	ErrNotFound = errors.New("not found in the shard")
	// ErrConflict: the same id with other contents, or a lost race that repeating does not cure.
	ErrConflict = errors.New("conflicts with what the shard has")
	// ErrNumberGap: an adjustment that is not the next of its sequence; *NumberGap names the last.
	ErrNumberGap = errors.New("adjustment is not the next of its sequence")
	// ErrInvalid: the arguments break a rule that the error names; permanent.
	ErrInvalid = errors.New("refused by the shard's rules")
	// ErrBadData: the database refused the data itself (SQLSTATE class 22 or 23). Permanent for
	// this data; a batch is halved to find it.
	ErrBadData = errors.New("the database refuses the data")
	// ErrBusy: another process holds the claim; ask again after its lease.
	ErrBusy = errors.New("another process holds the claim")
	// ErrUnsupported: a rule that this program cannot carry out; the text names it.
	ErrUnsupported = errors.New("not supported by this cell")
)

// NumberGap tells the last number the shard has, so that the sender can replay from there.
type NumberGap struct {
	Last, Got int64
}

// Error says both numbers.
func (e *NumberGap) Error() string {
	return fmt.Sprintf("%v: last is %d, got %d", ErrNumberGap, e.Last, e.Got)
}

// Unwrap makes errors.Is(err, ErrNumberGap) hold.
func (e *NumberGap) Unwrap() error { return ErrNumberGap }

// SafeToRetry answers one question: was certainly nothing written, and may the same call succeed
// later without anybody doing anything? ErrUnknownCommit is not safe in this sense, although every
// verb may be called again with the same ids.
func SafeToRetry(err error) bool {
	return errors.Is(err, ErrUnavailable) || errors.Is(err, ErrState) || errors.Is(err, ErrBusy)
}

// MayNotWrite tells that this process may not write now: fenced, settling only, or without a version.
// That is no fault of the loop that met it; the cell's link says why, once.
func MayNotWrite(err error) bool {
	return errors.Is(err, ErrNoWriter) || errors.Is(err, ErrFenced) || errors.Is(err, ErrState)
}

// own maps the SQLSTATEs that our functions raise.
var own = map[string]error{
	"CQ001": ErrFenced, "CQ003": ErrFenced, "CQ002": ErrState, "CQ004": ErrNoFence,
	"CQ005": ErrTermLower, "CQ006": ErrTermLower, "CQ007": ErrConflict, "CQ008": ErrUnavailable,
	"CQ009": ErrConflict, "CQ013": ErrConflict, "CQ020": ErrConflict,
}

// translate turns a driver's error into a sentinel that wraps it. What is none of the known kinds
// is ErrUnavailable when it never reached a verdict (connection, shutdown, limits of resources) and
// passes unchanged otherwise: a missing column is a bug, not a fault to wait out.
func translate(err error) error {
	if err == nil || isOurs(err) {
		return err
	}
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		if errors.Is(err, context.Canceled) || errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		if errors.Is(err, context.DeadlineExceeded) || connectionFault(err) {
			return fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		return err
	}
	if sentinel, ok := own[pg.Code]; ok {
		return fmt.Errorf("%w: %w", sentinel, err)
	}
	switch {
	case pg.Code == "57014" || retryable(err): // cancelled by a time-out; lock time-out; deadlock
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	case strings.HasPrefix(pg.Code, "22"), strings.HasPrefix(pg.Code, "23"):
		return fmt.Errorf("%w: %w", ErrBadData, err)
	case strings.HasPrefix(pg.Code, "08"), strings.HasPrefix(pg.Code, "53"), strings.HasPrefix(pg.Code, "57"),
		strings.HasPrefix(pg.Code, "58"), pg.Code == "25P03", pg.Code == "25006":
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return err
}

// sentinels lists every sentinel, for isOurs and for tests.
var sentinels = []error{
	ErrNoWriter, ErrFenced, ErrState, ErrNoFence, ErrTermLower, ErrUnknownCommit, ErrUnavailable, ErrPositionLost,
	ErrPositionMismatch, ErrShardBehind, ErrNotFound, ErrConflict, ErrNumberGap, ErrInvalid, ErrBadData, ErrBusy, ErrUnsupported,
}

func isOurs(err error) bool {
	for _, s := range sentinels {
		if errors.Is(err, s) {
			return true
		}
	}
	return false
}

// connectionFault tells a broken or refused connection from a mistake of ours in the arguments.
func connectionFault(err error) bool {
	var connect *pgconn.ConnectError
	return errors.As(err, &connect) || pgconn.SafeToRetry(err) || pgconn.Timeout(err) || isNetwork(err)
}

// retryable: nothing was written and trying at once may well succeed.
func retryable(err error) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return false
	}
	switch pg.Code {
	case "40001", "40P01", "55P03":
		return true
	}
	return false
}

// ErrorClass is the SQLSTATE class of an ErrBadData, for the parked row; DATA when it has none.
func ErrorClass(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && len(pg.Code) == 5 {
		return pg.Code[:2]
	}
	return "DATA"
}
