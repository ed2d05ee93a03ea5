package shard

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// Pressure is of the last seconds: failures that are the shard's count, what a transaction was refused
// for does not, and all is forgotten when nothing happens.
func TestPressureIsOfTheLastSeconds(t *testing.T) {
	var p pressure
	at := time.Unix(1000, 0)
	p.attempted(at, nil)
	p.attempted(at, ErrPositionLost)
	p.attempted(at, errors.Join(ErrFenced))
	if got := p.read(at); got.FailureRate != 0 {
		t.Fatalf("%+v", got)
	}
	p.attempted(at, &pgconn.PgError{Code: "40P01"})
	p.waited(at, time.Second)
	p.waited(at, time.Millisecond)
	if got := p.read(at); got.FailureRate != 0.25 || got.LockWait != time.Second {
		t.Fatalf("%+v", got)
	}
	p.attempted(at.Add(pressureSpan), ErrUnavailable)
	if got := p.read(at.Add(pressureSpan)); got.FailureRate != 0.4 || got.LockWait != time.Second {
		t.Fatalf("a span later: %+v", got)
	}
	if got := p.read(at.Add(2 * pressureSpan)); got.FailureRate != 1 || got.LockWait != 0 {
		t.Fatalf("two spans later: %+v", got)
	}
	if got := p.read(at.Add(5 * pressureSpan)); got != (Pressure{}) {
		t.Fatalf("long after: %+v", got)
	}
}
