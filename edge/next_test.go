package edge

import (
	"testing"
	"time"

	"github.com/cellquota/cellquota/edge/api"
	"github.com/cellquota/cellquota/edge/client"
)

// Every code of the catalogue has a rule here that says what the catalogue says: permanent answers
// are not tried again, and waiting is what the answer said.
func TestNextFollowsCatalogue(t *testing.T) {
	// Permanent for this customer's request though the catalogue cannot call them so: what changes
	// is his own doing, not time.
	stands := map[api.Code]bool{api.AlreadyReserved: true, api.Unauthenticated: true}
	for code, entry := range api.Catalog {
		for _, attempt := range []int{0, 3} {
			a := client.Answer{Status: entry.Status, Code: string(code), RetryAfter: 700 * time.Millisecond}
			step := client.Next(a, nil, attempt)
			if step.Again == (entry.Permanent || stands[code]) {
				t.Errorf("%s: again %v, permanent %v", code, step.Again, entry.Permanent)
			}
			if !step.Again {
				continue
			}
			if !step.NewPermit && step.After != a.RetryAfter {
				t.Errorf("%s: waits %v", code, step.After)
			}
			unknown := code == api.NotReady || code == api.Internal
			if want := attempt + map[bool]int{true: 1}[unknown]; step.RetryAttempt != want {
				t.Errorf("%s after attempt %d: Retry-Attempt %d, want %d", code, attempt, step.RetryAttempt, want)
			}
		}
	}
	if s := client.Next(client.Answer{Status: 202}, nil, 0); s.Again {
		t.Error("a success is tried again")
	}
	for attempt := range 20 {
		s := client.Next(client.Answer{}, client.ErrUnknown, attempt)
		if !s.Again || s.RetryAttempt != attempt+1 || s.After < 200*time.Millisecond || s.After > 8*time.Second {
			t.Errorf("no answer to attempt %d: %+v", attempt, s)
		}
	}
}
