package api

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/cellquota/cellquota/cell/admission"
	"github.com/cellquota/cellquota/cell/campaigns"
	"github.com/cellquota/cellquota/internal/clock"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

type standing struct{ doubts int }

func (*standing) MaySell(pb.OnLeaseLoss, time.Time) Verdict { return Sells }
func (s *standing) Doubt()                                  { s.doubts++ }

func newBatch() (*batch, *standing) {
	s := &standing{}
	return &batch{Server: New(Settings{Cell: "cell-1"}, Deps{Standing: s, Clock: clock.System(), Logger: slog.New(slog.DiscardHandler)})}, s
}

func asked() *checked {
	return &checked{ask: &pb.Ask{CorrelationId: 7}, campaign: &campaigns.Campaign{ID: "c", PerSKU: true}, sku: campaigns.SKU{ID: "s"}, user: "u", request: "r"}
}

// Every decision of the mirror has its own answer, and none of another's.
func TestOutcomesAreComplete(t *testing.T) {
	b, _ := newBatch()
	seen := map[pb.AdmitOutcome]admission.Outcome{}
	for _, o := range admission.Outcomes() {
		a := b.decided(asked(), admission.Result{Outcome: o})
		if a.GetOutcome() == pb.AdmitOutcome_ADMIT_OUTCOME_UNSPECIFIED || a.GetCorrelationId() != 7 {
			t.Errorf("%s: answer %v", o, a)
		}
		if before, twice := seen[a.GetOutcome()]; twice {
			t.Errorf("%s and %s have one answer", o, before)
		}
		seen[a.GetOutcome()] = o
		want := "ADMIT_OUTCOME_" + o.String()
		if o == admission.Conflict {
			want = "ADMIT_OUTCOME_IDEMPOTENCY_CONFLICT"
		}
		if a.GetOutcome().String() != want {
			t.Errorf("%s is told as %s", o, a.GetOutcome())
		}
	}
}

// What nobody decided is never about stock.
func TestUndecided(t *testing.T) {
	b, s := newBatch()
	if a := b.decided(asked(), admission.Result{Err: errors.New("boom")}); a.GetOutcome() != pb.AdmitOutcome_ADMIT_OUTCOME_NOT_READY || a.GetDetail() != "" {
		t.Errorf("%v", a)
	}
	if a := b.decided(asked(), admission.Result{Err: admission.ErrInvalidAsk}); a.GetOutcome() != pb.AdmitOutcome_ADMIT_OUTCOME_INVALID_ARGUMENT || a.GetDetail() == "" {
		t.Errorf("%v", a)
	}
	if b.decided(asked(), admission.Result{Outcome: admission.Fenced}); s.doubts != 1 {
		t.Errorf("a mirror that knows a higher fence was not followed up: %d doubts", s.doubts)
	}
}

func TestPatience(t *testing.T) {
	b, _ := newBatch()
	b.set.AckWait = time.Second
	for wait, want := range map[int32]time.Duration{0: time.Second, 400: 300 * time.Millisecond, 10_000: time.Second} {
		if got := b.patience(&pb.Ask{WaitMs: wait}); got != want {
			t.Errorf("wait_ms %d: %s, want %s", wait, got, want)
		}
	}
}
