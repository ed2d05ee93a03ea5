package edge

import (
	"net/http"
	"testing"

	"github.com/cellquota/cellquota/edge/celltest"
	cq "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// A cell that an operator paused: its customers are told PAUSED without it being asked, the other
// cell's customers buy, and a repeat is the cell's to answer.
func TestPausedCell(t *testing.T) {
	r := start(t)
	here, there := celltest.Homed("erin", 1, 0, 2)[0], celltest.Homed("frank", 1, 1, 2)[0]
	mine, theirs := r.permit(here), r.permit(there)
	r.cell(0, func(c *cq.CellRoute) { c.Paused = true })
	before, _ := r.cells[0].Asked()

	_, answer := r.buy(here, mine)
	r.must(answer, http.StatusServiceUnavailable, "PAUSED")
	res, body := r.raw(http.MethodPost, permitPath, "", bearer(r.token(here)))
	if res.StatusCode != http.StatusServiceUnavailable || r.code(body) != "PAUSED" {
		t.Errorf("permit: %d %s", res.StatusCode, body)
	}
	if after, _ := r.cells[0].Asked(); after != before {
		t.Error("a first attempt reached the paused cell")
	}
	if _, answer = r.buy(there, theirs); answer.Status != http.StatusAccepted {
		t.Errorf("the other cell's customer: %d %s", answer.Status, answer.Body)
	}
	if state := r.state(); state != "OPEN" {
		t.Errorf("GET says %s while one cell sells", state)
	}
	r.cells[0].Script(func(*cq.Ask) *cq.Answer {
		return &cq.Answer{Outcome: cq.AdmitOutcome_ADMIT_OUTCOME_REPLAYED, Request: &cq.RequestView{
			RequestId: "r1", CampaignId: campaign, SkuId: sku, State: cq.RequestState_REQUEST_STATE_PAID,
		}}
	})
	res, body = r.raw(http.MethodPost, askPath, ask("r1", 1, mine), with(bearer(r.token(here)), "Retry-Attempt", "1"))
	if res.StatusCode != http.StatusOK {
		t.Errorf("repeat: %d %s", res.StatusCode, body)
	}
	r.cells[0].Script(nil)
	r.cell(1, func(c *cq.CellRoute) { c.Paused = true })
	if state := r.state(); state != "PAUSED" {
		t.Errorf("GET says %s while every cell is paused", state)
	}
	r.cell(0, func(*cq.CellRoute) {})
	if _, answer = r.buy(here, mine); answer.Status != http.StatusAccepted {
		t.Errorf("after the pause: %d %s", answer.Status, answer.Body)
	}
}
