package edge

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cellquota/cellquota/edge/celltest"
	"github.com/cellquota/cellquota/edge/client"
	"github.com/cellquota/cellquota/internal/signed"
	"github.com/cellquota/cellquota/internal/testkit"
	cq "github.com/cellquota/cellquota/proto/cellquota/v1"
)

const (
	askPath    = "/v1/campaigns/" + campaign + "/skus/" + sku + "/requests"
	permitPath = "/v1/campaigns/" + campaign + "/skus/" + sku + "/permits"
)

// ask is the body of a request.
func ask(request string, quantity int, permit string) string {
	return fmt.Sprintf(`{"request_id":%q,"quantity":%d,"permit":%q}`, request, quantity, permit)
}

// The window, for first attempts, permits and repeats; and what a repeat may not pass.
func TestWindow(t *testing.T) {
	r := start(t)
	user := celltest.Homed("erin", 1, 0, 2)[0]
	permit := r.permit(user)
	at := now()
	for _, row := range []struct {
		name              string
		edit              func(*cq.CampaignRoute)
		status            int
		code              string
		permit, get, wait string
	}{
		{"before the start", func(c *cq.CampaignRoute) {
			c.Spec.OpenAt, c.Spec.CloseAt = timestamppb.New(at.Add(time.Minute)), timestamppb.New(at.Add(time.Hour))
		}, 409, "NOT_STARTED", "", "NOT_STARTED", "60"},
		{"before permits", func(c *cq.CampaignRoute) {
			c.Spec.OpenAt = timestamppb.New(at.Add(40 * time.Minute))
		}, 409, "NOT_STARTED", "NOT_STARTED", "NOT_STARTED", ""},
		{"paused campaign", func(c *cq.CampaignRoute) {
			c.Spec.OpenAt, c.State = timestamppb.New(at.Add(-time.Hour)), cq.CampaignState_CAMPAIGN_STATE_PAUSED
		}, 503, "PAUSED", "PAUSED", "PAUSED", ""},
		{"paused SKU", func(c *cq.CampaignRoute) {
			c.State, c.PausedSkus = cq.CampaignState_CAMPAIGN_STATE_PUBLISHED, []string{sku}
		}, 503, "PAUSED", "PAUSED", "PAUSED", ""},
		{"final", func(c *cq.CampaignRoute) { c.PausedSkus, c.FinalSkus = nil, []string{sku} }, 410, "FINAL_SOLD_OUT", "FINAL_SOLD_OUT", "FINAL_SOLD_OUT", ""},
		{"closed by hand", func(c *cq.CampaignRoute) {
			c.FinalSkus, c.State = nil, cq.CampaignState_CAMPAIGN_STATE_CLOSED
		}, 410, "ENDED", "ENDED", "ENDED", ""},
		{"after the end", func(c *cq.CampaignRoute) {
			c.State, c.Spec.CloseAt = cq.CampaignState_CAMPAIGN_STATE_PUBLISHED, timestamppb.New(at)
		}, 410, "ENDED", "ENDED", "ENDED", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := r.in(t)
			r.change(row.edit)
			before, _ := r.cells[0].Asked()
			res, body := r.raw(http.MethodPost, askPath, ask("w1", 1, permit), bearer(r.token(user)))
			if res.StatusCode != row.status || r.code(body) != row.code {
				t.Fatalf("first attempt: %d %s, want %d %s", res.StatusCode, r.code(body), row.status, row.code)
			}
			if row.wait != "" && res.Header.Get("Retry-After") < row.wait {
				t.Errorf("Retry-After %s, want at least %s", res.Header.Get("Retry-After"), row.wait)
			}
			if after, _ := r.cells[0].Asked(); after != before {
				t.Error("a first attempt outside the window reached the cell")
			}
			_, body = r.raw(http.MethodPost, permitPath, "", bearer(r.token(user)))
			if r.code(body) != row.permit {
				t.Errorf("permit: %q, want %q", r.code(body), row.permit)
			}
			if state := r.state(); state != row.get {
				t.Errorf("GET says %s, want %s", state, row.get)
			}
			// A repeat is the home cell's to decide.
			r.cells[0].Script(func(*cq.Ask) *cq.Answer {
				return &cq.Answer{Outcome: cq.AdmitOutcome_ADMIT_OUTCOME_REPLAYED, Request: &cq.RequestView{
					RequestId: "w1", CampaignId: campaign, SkuId: sku, State: cq.RequestState_REQUEST_STATE_PAID,
				}}
			})
			defer r.cells[0].Script(nil)
			res, body = r.raw(http.MethodPost, askPath, ask("w1", 1, permit), with(bearer(r.token(user)), "Retry-Attempt", "1"))
			if res.StatusCode != 200 {
				t.Errorf("repeat: %d %s", res.StatusCode, body)
			}
		})
	}
}

// state is what GET says about the SKU.
func (r *rig) state() string {
	r.t.Helper()
	_, body := r.raw(http.MethodGet, "/v1/campaigns/"+campaign, "", nil)
	var c client.Campaign
	if err := json.Unmarshal([]byte(body), &c); err != nil || len(c.SKUs) != 1 {
		r.t.Fatalf("%v: %s", err, body)
	}
	return c.SKUs[0].State
}

func with(h map[string]string, name, value string) map[string]string {
	out := map[string]string{name: value}
	for k, v := range h {
		out[k] = v
	}
	return out
}

// A permit is for one user, SKU and campaign, from a key that is not revoked, and not too old; every
// fault is answered with the same text (K55).
func TestPermitFaults(t *testing.T) {
	r := start(t)
	users := celltest.Homed("frank", 2, 0, 2)
	user := users[0]
	good := r.permit(user)
	mint := func(edit func(*signed.Permit), set *signed.KeySet, kid string) string {
		p := signed.Permit{Campaign: campaign, SKU: sku, User: userID(user), Expires: now().Add(time.Minute), Nonce: signed.NewNonce()}
		edit(&p)
		token, err := p.Sign(set, kid)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	mine := r.keys[signed.UsePermit]
	other, err := signed.NewKeySet(signed.UsePermit, map[string][]byte{"k1": []byte("another key of sixteen bytes"), "k9": []byte("another key of sixteen bytes")})
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]bool{}
	for name, token := range map[string]string{
		"another user's":   r.permit(users[1]),
		"another campaign": mint(func(p *signed.Permit) { p.Campaign = "other" }, mine, "k1"),
		"another SKU":      mint(func(p *signed.Permit) { p.SKU = "other" }, mine, "k1"),
		"forged":           mint(func(*signed.Permit) {}, other, "k1"),
		"unknown key":      mint(func(*signed.Permit) {}, other, "k9"),
		"cut":              good[:len(good)-4],
		"expired":          mint(func(p *signed.Permit) { p.Expires = now().Add(-time.Millisecond) }, mine, "k1"),
		"no permit at all": "x",
		"a receipt": func() string {
			q, _ := r.buy(user, good)
			return q.Receipt
		}(),
	} {
		res, body := r.raw(http.MethodPost, askPath, ask("p1", 1, token), bearer(r.token(user)))
		if res.StatusCode != 403 || r.code(body) != "PERMIT_INVALID" {
			t.Errorf("%s: %d %s", name, res.StatusCode, body)
		}
		var p map[string]any
		if err := json.Unmarshal([]byte(body), &p); err != nil {
			t.Fatal(err)
		}
		delete(p, "trace_id")
		text, _ := json.Marshal(p)
		texts[string(text)] = true
		if strings.Contains(r.log.String(), token) && len(token) > 8 {
			t.Errorf("%s: the permit is in the log", name)
		}
	}
	if len(texts) != 1 {
		t.Errorf("causes can be told apart: %v", texts)
	}
	// An expired permit serves a repeat.
	expired := mint(func(p *signed.Permit) { p.Expires = now().Add(-time.Hour) }, mine, "k1")
	_, a := r.buy(user, expired, func(t *client.Try) { t.RetryAttempt = 2 })
	r.must(a, 202, "")

	// Rotation: a new key signs once it is ACTIVE and its file is here; the old one still verifies,
	// until it is revoked.
	r.addKey(signed.UsePermit, "k2")
	testkit.Eventually(t, 10*time.Second, func() error { // read again and told of, though no state changed
		if !slices.Contains(r.control.Keys(), "permit/k2") {
			return fmt.Errorf("the edge tells of %v", r.control.Keys())
		}
		return nil
	})
	r.send(&cq.WatchRoutesResponse{Keys: []*cq.KeyInfo{
		{Use: "permit", Kid: "k1", State: "ACTIVE"}, {Use: "permit", Kid: "k2", State: "PENDING"},
	}})
	if p := r.permit(users[1]); !strings.HasPrefix(p, "v1.k1.") {
		t.Errorf("signed with %.6s while k1 is ACTIVE", p)
	}
	r.send(&cq.WatchRoutesResponse{Keys: []*cq.KeyInfo{
		{Use: "permit", Kid: "k1", State: "RETIRING"}, {Use: "permit", Kid: "k2", State: "ACTIVE"},
	}})
	if p := r.permit(users[1]); !strings.HasPrefix(p, "v1.k2.") {
		t.Errorf("signed with %.6s while k2 is ACTIVE", p)
	}
	_, a = r.buy(user, good)
	r.must(a, 202, "")
	r.send(&cq.WatchRoutesResponse{Keys: []*cq.KeyInfo{
		{Use: "permit", Kid: "k1", State: "REVOKED"}, {Use: "permit", Kid: "k2", State: "ACTIVE"},
	}})
	_, a = r.buy(user, good)
	r.must(a, 403, "PERMIT_INVALID")
}

// Eligibility and home regions.
func TestEligibility(t *testing.T) {
	r := start(t)
	users := celltest.Homed("grace", 7, 0, 2)
	permits := map[string]string{}
	for _, user := range users {
		permits[user] = r.permit(user)
	}
	r.change(func(c *cq.CampaignRoute) {
		c.Spec.Eligibility = &cq.EligibilityRules{
			Claims:        []*cq.ClaimRule{{Claim: "account_status", Values: []string{"active", "gold"}}},
			DenyRiskTiers: []string{"blocked"},
		}
	})
	status := func(value any) func(*client.TokenClaims) {
		return func(c *client.TokenClaims) { c.More = map[string]any{"account_status": value} }
	}
	for name, row := range map[string]struct {
		edit []func(*client.TokenClaims)
		ok   bool
	}{
		"no claim":     {nil, false},
		"wrong value":  {[]func(*client.TokenClaims){status("frozen")}, false},
		"wrong case":   {[]func(*client.TokenClaims){status("Active")}, false},
		"an object":    {[]func(*client.TokenClaims){status(map[string]any{"active": true})}, false},
		"right value":  {[]func(*client.TokenClaims){status("active")}, true},
		"in a list":    {[]func(*client.TokenClaims){status([]string{"x", "gold"})}, true},
		"blocked tier": {[]func(*client.TokenClaims){status("active"), func(c *client.TokenClaims) { c.RiskTier = "blocked" }}, false},
	} {
		want := map[bool]string{true: "", false: "NOT_ELIGIBLE"}[row.ok]
		user := users[0]
		users = users[1:]
		token := r.token(user, row.edit...)
		if _, body := r.raw(http.MethodPost, permitPath, "", bearer(token)); r.code(body) != want {
			t.Errorf("%s: permit says %q, want %q", name, r.code(body), want)
		}
		if _, body := r.raw(http.MethodPost, askPath, ask("e1", 1, permits[user]), bearer(token)); r.code(body) != want {
			t.Errorf("%s: request says %q, want %q", name, r.code(body), want)
		}
	}
}

// With routing by home region the domain comes from the token, and only from there.
func TestHomeRegion(t *testing.T) {
	r := start(t)
	// Every user of the west is at home in cell-2, whatever his bucket.
	user := celltest.Homed("heidi", 1, 0, 2)[0]
	r.change(func(c *cq.CampaignRoute) {
		c.Spec.Routing = cq.RoutingMode_ROUTING_MODE_HOME_REGION
		c.Domains = []*cq.DomainRoute{celltest.Domain("east", "cell-1"), celltest.Domain("west", "cell-2")}
	})
	region := func(name string, since time.Time) func(*client.TokenClaims) {
		return func(c *client.TokenClaims) { c.HomeRegion, c.HomeRegionSince = name, since }
	}
	published := time.UnixMilli(r.route.GetPublishedAtMs())
	for name, row := range map[string]struct {
		edit func(*client.TokenClaims)
		code string
	}{
		"none":           {func(*client.TokenClaims) {}, "HOME_REGION_REQUIRED"},
		"unknown":        {region("mars", published.Add(-time.Hour)), "HOME_REGION_REQUIRED"},
		"no since":       {func(c *client.TokenClaims) { c.More = map[string]any{"home_region": "west"} }, "HOME_REGION_REQUIRED"},
		"since too late": {region("west", published.Add(2*time.Second)), "HOME_REGION_CHANGED"},
		"since in time":  {region("west", published.Add(-2*time.Second)), ""},
	} {
		_, body := r.raw(http.MethodPost, permitPath, "", with(bearer(r.token(user, row.edit)), "X-Home-Region", "east"))
		if r.code(body) != row.code {
			t.Errorf("%s: %q, want %q", name, r.code(body), row.code)
		}
	}
	if _, last := r.cells[1].Asked(); last.GetDomain() != "west" || last.GetUserId() != user {
		t.Errorf("cell-2 was asked %v", last)
	}
}

// Unknown names are 404 with and without a token; ids that are none too.
func TestNotFound(t *testing.T) {
	r := start(t)
	user := celltest.Homed("ivan", 2, 0, 2)
	q, a := r.buy(user[0], r.permit(user[0]))
	r.must(a, 202, "")
	order := r.cells[0].MakeOrder(campaign, sku, user[0], "r1")
	r.send(&cq.WatchRoutesResponse{Campaigns: []*cq.CampaignRoute{func() *cq.CampaignRoute {
		c := celltest.Route("draft", now(), "cell-1")
		c.State = cq.CampaignState_CAMPAIGN_STATE_PUBLISHING
		return c
	}()}})
	stranger := bearer(r.token(user[1]))
	for _, path := range []string{
		"/v1/campaigns/unknown", "/v1/campaigns/draft", "/v1/campaigns/UPPER", "/v1/campaigns/", "/v1/campaigns/a%2Fb",
		"/v1/campaigns/" + campaign + "/skus/unknown/requests/r1",
		askPath + "/never", askPath + "/r1", askPath + "/r1?receipt=" + q.Receipt + "x", askPath + "/b%0Ad",
		"/v1/orders/" + order, "/v1/orders/cell-9.oaaaaaaaaaaaaaaaaaaaaaaaaaa", "/v1/orders/nonsense",
		"/", "/v1", "/v1/orders/" + order + "/cancel/more", "/problems", "/v2/orders", "//v1/orders",
	} {
		res, body := r.raw(http.MethodGet, path, "", stranger)
		if res.StatusCode != 404 || r.code(body) != "NOT_FOUND" {
			t.Errorf("%s: %d %s", path, res.StatusCode, body)
		}
	}
	for _, path := range []string{"/v1/orders/" + order + "/cancel", "/v1/orders/" + order + "/payments"} {
		if _, body := r.raw(http.MethodPost, path, map[bool]string{true: `{"payment_id":"p"}`}[strings.HasSuffix(path, "payments")], stranger); r.code(body) != "NOT_FOUND" {
			t.Errorf("%s: %s", path, body)
		}
	}
	// The right user, asked without a token, is not even told that.
	res, body := r.raw(http.MethodGet, askPath+"/r1", "", nil)
	if res.StatusCode != 401 || r.code(body) != "UNAUTHENTICATED" || res.Header.Get("WWW-Authenticate") == "" {
		t.Errorf("no token: %d %s", res.StatusCode, body)
	}
	res, body = r.raw(http.MethodDelete, "/v1/orders/"+order, "", bearer(r.token(user[0])))
	if res.StatusCode != 405 || r.code(body) != "METHOD_NOT_ALLOWED" || !strings.Contains(res.Header.Get("Allow"), "GET") {
		t.Errorf("DELETE: %d %s, Allow %q", res.StatusCode, body, res.Header.Get("Allow"))
	}
}

// GET of a campaign may be kept, but never past a boundary.
func TestCampaignFreshness(t *testing.T) {
	r := start(t)
	for _, row := range []struct {
		opensIn time.Duration
		want    string
	}{{time.Hour, "public, max-age=2"}, {1900 * time.Millisecond, "public, max-age=1"}, {700 * time.Millisecond, "no-cache"}} {
		r.change(func(c *cq.CampaignRoute) {
			c.Spec.OpenAt, c.Spec.CloseAt = timestamppb.New(now().Add(row.opensIn)), timestamppb.New(now().Add(2*time.Hour))
		})
		res, _ := r.raw(http.MethodGet, "/v1/campaigns/"+campaign, "", nil)
		if got := res.Header.Get("Cache-Control"); got != row.want && got != "no-cache" {
			t.Errorf("opens in %v: %s, want %s", row.opensIn, got, row.want)
		}
	}
	r.change(func(c *cq.CampaignRoute) { c.Spec.Permits = &cq.PermitRules{Ttl: durationpb.New(time.Minute)} })
	p, a, err := r.client.Permit(context.Background(), r.token("judy"), campaign, sku)
	if err != nil || a.Status != 201 || p.ExpiresAt.Sub(p.NotBefore) != time.Minute {
		t.Fatalf("permit %+v: %v", p, err)
	}
}
