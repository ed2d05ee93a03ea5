package rebuild_test

import (
	"errors"
	"testing"
	"time"

	"github.com/cellquota/cellquota/cell/admission"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/testkit"
	cellquotav1 "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// I6 and I9 over a review: an admission whose message PostgreSQL refuses is parked with its unit and its
// mark; returned, the unit is in the mirror once, and its user buys under another id. A mirror that was
// built meanwhile had the unit from the start.
func TestAParkedAdmissionIsReturned(t *testing.T) {
	for name, rebuilt := range map[string]bool{"to its own mirror": false, "after a rebuild": true} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.grant(10)
			b.everything()
			b.one.produce(b.one.accepted("bob", "r1")) // until there is a mirror
			r := b.one.mirror.Admit(b.ctx, []admission.Ask{{
				Scope: scope, SKU: phone, User: "ann", Request: "r1", Quantity: 2, Nonce: "ann/r1", PermitExpiresAtMS: 1 << 42,
				Price: &cellquotav1.Money{Amount: "10.00", Currency: "CNY"}, CampaignVersion: 1, DeviceID: "nul\x00byte",
			}})[0]
			if r.Outcome != admission.Accepted {
				t.Fatalf("%s %v", r.Outcome, r.Err)
			}
			b.one.produce(*r.Granted)
			b.eventuallyState("ann", "r1", "PARKED")
			if again := b.one.ask("ann", "r2"); again.Outcome != admission.AlreadyReserved {
				t.Fatalf("the mark went with the message: %s", again.Outcome)
			}
			if rebuilt {
				b.redis.Restart(t)
				b.one.produce(b.one.accepted("eve", "r1"))
			}
			ask := shard.ReviewAsk{Reservation: r.Granted.Reservation, Operation: "op", Actor: "sre", Reason: "damaged", Incident: "INC-1"}
			for range 2 {
				if e, err := b.one.store.ReturnAdmission(b.ctx, ask); err != nil || e.Units != 2 {
					t.Fatalf("%+v, %v", e, err)
				}
			}
			b.eventuallyState("ann", "r1", "REJECTEDMALFORMED")
			b.one.produce(*r.Granted) // once more, late
			testkit.Eventually(t, 20*time.Second, func() error {
				got := b.one.mirror.Lookup(b.ctx, []admission.LookupAsk{{Scope: scope, SKU: phone, User: "ann", Request: "r1"}})[0]
				if got.State != cellquotav1.RequestState_REQUEST_STATE_REJECTED || got.Reason != cellquotav1.Reason_REASON_MALFORMED {
					return errors.New("the mirror says " + got.State.String())
				}
				return nil
			})
			b.one.produce(b.one.accepted("ann", "r2"))
			b.eventuallyState("ann", "r2", "ORDEREDPENDING_PAYMENT")
			if got, want := b.quiet(), int64(map[bool]int{false: 8, true: 7}[rebuilt]); got != want {
				t.Errorf("mirror has %d, want %d", got, want)
			}
		})
	}
}
