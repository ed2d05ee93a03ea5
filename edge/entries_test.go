package edge

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cellquota/cellquota/edge/celltest"
	"github.com/cellquota/cellquota/edge/client"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	cq "github.com/cellquota/cellquota/proto/cellquota/v1"
)

const entryPath = "/v1/campaigns/" + campaign + "/skus/" + sku + "/entries"

// lottery turns the campaign into one that draws, with entry open from and until so long from now.
func (r *rig) lottery(opens, closes time.Duration) {
	r.t.Helper()
	r.change(func(c *cq.CampaignRoute) {
		c.Spec.Mode, c.LotteryCommitment = cq.CampaignMode_CAMPAIGN_MODE_LOTTERY, fmt.Sprintf("%064x", 7)
		c.Spec.Lottery = &cq.LotteryRules{EntryOpenAt: timestamppb.New(time.Now().Add(opens)), EntryCloseAt: timestamppb.New(time.Now().Add(closes))}
	})
}

// A lottery seen from outside: entry in its window, permits for who won, and a cell that does not answer
// never read as "not drawn".
func TestLottery(t *testing.T) {
	r := start(t)
	user, other := celltest.Homed("lou", 2, 0, 2)[0], celltest.Homed("lou", 2, 0, 2)[1]
	if _, a, err := r.client.Enter(t.Context(), r.token(user), campaign, sku, 0); err != nil || a.Status != 404 {
		t.Errorf("a campaign that does not draw: %d, %v", a.Status, err)
	}
	r.lottery(time.Hour, 2*time.Hour)
	_, a, _ := r.client.Enter(t.Context(), r.token(user), campaign, sku, 0)
	r.must(a, 409, "NOT_STARTED")
	r.lottery(-time.Hour, time.Hour)
	gold := r.token(user, func(c *client.TokenClaims) { c.More = map[string]any{"tier": "gold"} })
	entry, a, err := r.client.Enter(t.Context(), gold, campaign, sku, 0)
	if err != nil || a.Status != 202 || entry.State != "ENTERED" || entry.Tickets != 3 {
		t.Fatalf("%d, %+v, %v", a.Status, entry, err)
	}
	if again, a, err := r.client.Enter(t.Context(), gold, campaign, sku, 0); err != nil || a.Status != 202 || again != entry {
		t.Errorf("the repeat: %d, %+v, %v", a.Status, again, err)
	}
	if _, a, _ := r.client.Enter(t.Context(), r.token(other), campaign, sku, 0); a.Status != 202 {
		t.Fatalf("the other one: %+v", a)
	}
	if _, a, _ := r.client.Entry(t.Context(), r.token(other), campaign, sku, entry.EntryID); a.Status != 404 {
		t.Errorf("somebody else's entry: %+v", a)
	}
	_, a, _ = r.client.Permit(t.Context(), gold, campaign, sku)
	r.must(a, 409, "NOT_STARTED") // not drawn yet
	if a.RetryAfter <= 0 {
		t.Errorf("and when to come again: %+v", a)
	}

	r.lottery(-time.Hour, -time.Minute)
	_, a, _ = r.client.Enter(t.Context(), r.token(user), campaign, sku, 0)
	r.must(a, 410, "ENDED")
	if again, a, _ := r.client.Enter(t.Context(), r.token(user), campaign, sku, 1); a.Status != 202 || again.EntryID != entry.EntryID {
		t.Errorf("whose answer was lost: %d, %+v", a.Status, again)
	}
	r.cells[0].Drawn(user)
	if now, a, _ := r.client.Entry(t.Context(), gold, campaign, sku, entry.EntryID); a.Status != 200 || now.State != "WON" {
		t.Errorf("the winner: %d, %+v", a.Status, now)
	}
	if _, a, _ := r.client.Permit(t.Context(), gold, campaign, sku); a.Status != 201 {
		t.Errorf("the winner's permit: %+v", a)
	}
	_, a, _ = r.client.Permit(t.Context(), r.token(other), campaign, sku)
	r.must(a, 403, "NOT_ELIGIBLE")
	_, a, _ = r.client.Permit(t.Context(), r.token(celltest.Homed("max", 1, 0, 2)[0]), campaign, sku)
	r.must(a, 403, "NOT_ELIGIBLE") // who never entered is told the same
	r.cells[0].FailCalls(rpcstatus.ErrUnavailable)
	_, a, _ = r.client.Permit(t.Context(), gold, campaign, sku)
	r.must(a, 503, "NOT_READY")
}
