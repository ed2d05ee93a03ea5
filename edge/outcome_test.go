package edge

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"testing"

	"github.com/cellquota/cellquota/edge/celltest"
	cq "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Every outcome of a home cell, and what its customer is told.
func TestOutcomes(t *testing.T) {
	r := start(t, func(c *Config) { c.SoldOut.TTL = 0 })
	user := celltest.Homed("carol", 1, 0, 2)[0]
	permit := r.permit(user)
	own := &cq.RequestView{RequestId: "mine", CampaignId: campaign, SkuId: "other-sku", State: cq.RequestState_REQUEST_STATE_QUEUED}
	at := func(s cq.RequestState) *cq.RequestView {
		return &cq.RequestView{RequestId: "r1", CampaignId: campaign, SkuId: sku, State: s, ReservationId: "x"}
	}
	const ownURL = "/v1/campaigns/" + campaign + "/skus/other-sku/requests/mine"
	for _, row := range []struct {
		answer    *cq.Answer
		status    int
		code      string // "" for a success
		wait      bool   // Retry-After
		statusURL string
		replayed  bool
	}{
		{&cq.Answer{Outcome: cq.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED, Request: at(cq.RequestState_REQUEST_STATE_ADMITTED)}, 202, "", false, "", false},
		{&cq.Answer{Outcome: cq.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED, Request: at(cq.RequestState_REQUEST_STATE_QUEUED)}, 202, "", false, "", false},
		{&cq.Answer{Outcome: cq.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED, Request: at(cq.RequestState_REQUEST_STATE_PENDING_PAYMENT)}, 202, "", false, "", false},
		{&cq.Answer{Outcome: cq.AdmitOutcome_ADMIT_OUTCOME_REPLAYED, Request: at(cq.RequestState_REQUEST_STATE_ADMITTED)}, 202, "", false, "", true},
		{&cq.Answer{Outcome: cq.AdmitOutcome_ADMIT_OUTCOME_REPLAYED, Request: at(cq.RequestState_REQUEST_STATE_QUEUED)}, 202, "", false, "", true},
		{&cq.Answer{Outcome: cq.AdmitOutcome_ADMIT_OUTCOME_REPLAYED, Request: at(cq.RequestState_REQUEST_STATE_PENDING_PAYMENT)}, 200, "", false, "", true},
		{&cq.Answer{Outcome: cq.AdmitOutcome_ADMIT_OUTCOME_REPLAYED, Request: at(cq.RequestState_REQUEST_STATE_PAID)}, 200, "", false, "", true},
		{&cq.Answer{Outcome: cq.AdmitOutcome_ADMIT_OUTCOME_REPLAYED, Request: at(cq.RequestState_REQUEST_STATE_CLOSED)}, 200, "", false, "", true},
		{&cq.Answer{Outcome: cq.AdmitOutcome_ADMIT_OUTCOME_REPLAYED, Request: at(cq.RequestState_REQUEST_STATE_REJECTED)}, 200, "", false, "", true},
		{&cq.Answer{Outcome: cq.AdmitOutcome_ADMIT_OUTCOME_REPLAYED, Request: at(cq.RequestState_REQUEST_STATE_RELEASED)}, 200, "", false, "", true},
		{&cq.Answer{Outcome: cq.AdmitOutcome_ADMIT_OUTCOME_REPLAYED, Request: at(cq.RequestState_REQUEST_STATE_MANUAL_REVIEW)}, 200, "", false, "", true},
		{&cq.Answer{Outcome: cq.AdmitOutcome_ADMIT_OUTCOME_IDEMPOTENCY_CONFLICT}, 409, "IDEMPOTENCY_CONFLICT", false, "", false},
		{&cq.Answer{Outcome: cq.AdmitOutcome_ADMIT_OUTCOME_ALREADY_RESERVED, Request: own}, 409, "ALREADY_RESERVED", false, ownURL, false},
		{&cq.Answer{Outcome: cq.AdmitOutcome_ADMIT_OUTCOME_ALREADY_PURCHASED, Request: own}, 409, "ALREADY_PURCHASED", false, ownURL, false},
		{&cq.Answer{Outcome: cq.AdmitOutcome_ADMIT_OUTCOME_ORDER_CLOSED, Request: own}, 409, "ORDER_CLOSED", false, ownURL, false},
		{&cq.Answer{Outcome: cq.AdmitOutcome_ADMIT_OUTCOME_TEMP_SOLD_OUT}, 409, "TEMP_SOLD_OUT", true, "", false},
		{&cq.Answer{Outcome: cq.AdmitOutcome_ADMIT_OUTCOME_FINAL_SOLD_OUT}, 410, "FINAL_SOLD_OUT", false, "", false},
		{&cq.Answer{Outcome: cq.AdmitOutcome_ADMIT_OUTCOME_QUEUE_FULL}, 429, "QUEUE_FULL", true, "", false},
		{&cq.Answer{Outcome: cq.AdmitOutcome_ADMIT_OUTCOME_THROTTLED}, 429, "THROTTLED", true, "", false},
		{&cq.Answer{Outcome: cq.AdmitOutcome_ADMIT_OUTCOME_NOT_STARTED, OpensInMs: 1500}, 409, "NOT_STARTED", true, "", false},
		{&cq.Answer{Outcome: cq.AdmitOutcome_ADMIT_OUTCOME_ENDED}, 410, "ENDED", false, "", false},
		{&cq.Answer{Outcome: cq.AdmitOutcome_ADMIT_OUTCOME_PAUSED}, 503, "PAUSED", true, "", false},
		{&cq.Answer{Outcome: cq.AdmitOutcome_ADMIT_OUTCOME_NOT_READY}, 503, "NOT_READY", true, "", false},
		{&cq.Answer{Outcome: cq.AdmitOutcome_ADMIT_OUTCOME_FENCED}, 503, "HOME_CELL_UNAVAILABLE", true, "", false},
		{&cq.Answer{Outcome: cq.AdmitOutcome_ADMIT_OUTCOME_MOVED}, 503, "MOVED_PENDING", true, "", false},
		{&cq.Answer{Outcome: cq.AdmitOutcome_ADMIT_OUTCOME_PERMIT_INVALID}, 403, "PERMIT_INVALID", false, "", false},
		{&cq.Answer{Outcome: cq.AdmitOutcome_ADMIT_OUTCOME_INVALID_ARGUMENT, Detail: "quantity: must be odd"}, 400, "INVALID_ARGUMENT", false, "", false},
		{&cq.Answer{Outcome: cq.AdmitOutcome_ADMIT_OUTCOME_TOO_MANY_UNPAID}, 409, "TOO_MANY_UNPAID", true, "", false},
		{&cq.Answer{Outcome: cq.AdmitOutcome_ADMIT_OUTCOME_UNKNOWN_CAMPAIGN}, 503, "NOT_READY", true, "", false},
		{&cq.Answer{Outcome: cq.AdmitOutcome_ADMIT_OUTCOME_CLEAR}, 503, "NOT_READY", true, "", false},
		{&cq.Answer{}, 503, "NOT_READY", true, "", false},
		{&cq.Answer{Outcome: 99}, 503, "NOT_READY", true, "", false},
	} {
		name := fmt.Sprintf("%s %s", row.answer.GetOutcome(), row.answer.GetRequest().GetState())
		t.Run(name, func(t *testing.T) {
			r := r.in(t)
			r.cells[0].Script(func(*cq.Ask) *cq.Answer { return clone(row.answer) })
			body := fmt.Sprintf(`{"request_id":"r1","quantity":1,"permit":%q}`, permit)
			res, text := r.raw(http.MethodPost, "/v1/campaigns/"+campaign+"/skus/"+sku+"/requests", body, bearer(r.token(user)))
			if res.StatusCode != row.status || r.code(text) != row.code {
				t.Fatalf("answered %d %s, want %d %s: %s", res.StatusCode, r.code(text), row.status, row.code, text)
			}
			r.common(res, text)
			var p struct {
				RetryAfterMS int64  `json:"retry_after_ms"`
				StatusURL    string `json:"status_url"`
				Errors       []struct{ Detail string }
			}
			if err := json.Unmarshal([]byte(text), &p); err != nil {
				t.Fatal(err)
			}
			seconds, _ := strconv.ParseInt(res.Header.Get("Retry-After"), 10, 64)
			if (p.RetryAfterMS > 0) != row.wait || (seconds > 0) != row.wait || (row.wait && seconds*1000 < p.RetryAfterMS) {
				t.Errorf("Retry-After %d s, retry_after_ms %d, want them: %v", seconds, p.RetryAfterMS, row.wait)
			}
			if row.answer.GetOpensInMs() > 0 && p.RetryAfterMS < int64(row.answer.GetOpensInMs()) {
				t.Errorf("told to come back in %d ms, before it opens", p.RetryAfterMS)
			}
			if row.code != "" && p.StatusURL != row.statusURL {
				t.Errorf("status_url %q, want %q", p.StatusURL, row.statusURL)
			}
			if got := res.Header.Get("Idempotent-Replayed") == "true"; got != row.replayed {
				t.Errorf("Idempotent-Replayed %v, want %v", got, row.replayed)
			}
			if (res.Header.Get("Location") != "") != (row.status == 202) {
				t.Errorf("Location %q with %d", res.Header.Get("Location"), row.status)
			}
			if row.code == "INVALID_ARGUMENT" && (len(p.Errors) != 1 || p.Errors[0].Detail != row.answer.GetDetail()) {
				t.Errorf("errors are %v", p.Errors)
			}
		})
	}
}

// common checks what every per-user answer has.
func (r *rig) common(res *http.Response, body string) {
	r.t.Helper()
	if len(res.Header.Get("Trace-Id")) != 32 || res.Header.Get("Cache-Control") != "no-store" {
		r.t.Errorf("Trace-Id %q, Cache-Control %q", res.Header.Get("Trace-Id"), res.Header.Get("Cache-Control"))
	}
	want := "application/json"
	if res.StatusCode >= 400 {
		want = "application/problem+json"
		var p map[string]any
		if err := json.Unmarshal([]byte(body), &p); err != nil {
			r.t.Fatal(err)
		}
		if p["type"] != "/problems/"+p["code"].(string) || p["status"] != float64(res.StatusCode) || p["trace_id"] != res.Header.Get("Trace-Id") ||
			p["title"] == "" || p["detail"] == "" {
			r.t.Errorf("problem is %v", p)
		}
	}
	if res.Header.Get("Content-Type") != want {
		r.t.Errorf("Content-Type %q, want %q", res.Header.Get("Content-Type"), want)
	}
}

// in is the rig for a subtest.
func (r *rig) in(t testing.TB) *rig {
	sub := *r
	sub.t = t
	return &sub
}

func bearer(token string) map[string]string {
	return map[string]string{"Authorization": "Bearer " + token}
}

// The permit call says what stands against a first attempt, and nothing else.
func TestPermitOutcomes(t *testing.T) {
	r := start(t)
	user := celltest.Homed("dave", 1, 1, 2)[0]
	for outcome, want := range map[cq.AdmitOutcome]struct {
		status int
		code   string
	}{
		cq.AdmitOutcome_ADMIT_OUTCOME_CLEAR:             {201, ""},
		cq.AdmitOutcome_ADMIT_OUTCOME_NOT_STARTED:       {201, ""},
		cq.AdmitOutcome_ADMIT_OUTCOME_ALREADY_RESERVED:  {409, "ALREADY_RESERVED"},
		cq.AdmitOutcome_ADMIT_OUTCOME_ALREADY_PURCHASED: {409, "ALREADY_PURCHASED"},
		cq.AdmitOutcome_ADMIT_OUTCOME_ORDER_CLOSED:      {409, "ORDER_CLOSED"},
		cq.AdmitOutcome_ADMIT_OUTCOME_TOO_MANY_UNPAID:   {409, "TOO_MANY_UNPAID"},
		cq.AdmitOutcome_ADMIT_OUTCOME_FINAL_SOLD_OUT:    {410, "FINAL_SOLD_OUT"},
		cq.AdmitOutcome_ADMIT_OUTCOME_ENDED:             {410, "ENDED"},
		cq.AdmitOutcome_ADMIT_OUTCOME_THROTTLED:         {429, "THROTTLED"},
		cq.AdmitOutcome_ADMIT_OUTCOME_PAUSED:            {503, "PAUSED"},
		cq.AdmitOutcome_ADMIT_OUTCOME_NOT_READY:         {503, "NOT_READY"},
		cq.AdmitOutcome_ADMIT_OUTCOME_FENCED:            {503, "HOME_CELL_UNAVAILABLE"},
		cq.AdmitOutcome_ADMIT_OUTCOME_MOVED:             {503, "MOVED_PENDING"},
	} {
		r.cells[1].Script(func(*cq.Ask) *cq.Answer { return &cq.Answer{Outcome: outcome} })
		p, a, err := r.client.Permit(context.Background(), r.token(user), campaign, sku)
		if err != nil || a.Status != want.status || a.Code != want.code || (p.Permit != "") != (want.status == 201) {
			t.Errorf("%s: %v %d %s, want %d %s", outcome, err, a.Status, a.Code, want.status, want.code)
		}
	}
}

func clone(a *cq.Answer) *cq.Answer {
	return &cq.Answer{
		Outcome: a.GetOutcome(), Request: a.GetRequest(), StockLeft: a.GetStockLeft(), RetryAfterMs: a.GetRetryAfterMs(),
		Detail: a.GetDetail(), OpensInMs: a.GetOpensInMs(),
	}
}
