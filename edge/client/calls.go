package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// Campaign is what GET of a campaign says.
type Campaign struct {
	ServerTime time.Time       `json:"server_time"`
	OpenAt     time.Time       `json:"open_at"`
	CloseAt    time.Time       `json:"close_at"`
	Version    int64           `json:"version"`
	Display    json.RawMessage `json:"display"`
	SKUs       []struct {
		SKUID string `json:"sku_id"`
		State string `json:"state"`
	} `json:"skus"`
}

// Campaign asks for a campaign; no token is needed.
func (c *Client) Campaign(ctx context.Context, campaign string) (Campaign, Answer, error) {
	var out Campaign
	a, err := c.do(ctx, in{method: http.MethodGet, path: "/v1/campaigns/" + campaign}, &out)
	return out, a, err
}

// Permit is the short-lived right to try.
type Permit struct {
	Permit    string    `json:"permit"`
	NotBefore time.Time `json:"not_before"`
	ExpiresAt time.Time `json:"expires_at"`
	OpensInMS int64     `json:"opens_in_ms"`
}

// Permit claims a permit.
func (c *Client) Permit(ctx context.Context, token, campaign, sku string) (Permit, Answer, error) {
	var out Permit
	a, err := c.do(ctx, in{method: http.MethodPost, token: token, path: "/v1/campaigns/" + campaign + "/skus/" + sku + "/permits"}, &out)
	return out, a, err
}

// Try is one attempt to buy. A repeat has the same RequestID and Quantity.
type Try struct {
	RequestID    string
	Quantity     int
	Permit       string
	RetryAttempt int // 0: the first attempt, or one that was answered
}

// Request is a request as its home cell sees it.
type Request struct {
	CampaignID    string    `json:"campaign_id"` // in lists only
	SKUID         string    `json:"sku_id"`      // in lists only
	RequestID     string    `json:"request_id"`
	State         string    `json:"state"`
	Reason        string    `json:"reason"`
	Message       string    `json:"message"`
	ReservationID string    `json:"reservation_id"`
	OrderID       string    `json:"order_id"`
	ExpiresAt     time.Time `json:"expires_at"`
	ExpiresInMS   int64     `json:"expires_in_ms"`
	Ack           string    `json:"ack"`
	Receipt       string    `json:"receipt"`
	StatusURL     string    `json:"status_url"`
	PollAfterMS   int64     `json:"poll_after_ms"`
}

// OnItsWay reports whether the request may still become an order by itself.
func (r Request) OnItsWay() bool { return r.State == "ADMITTED" || r.State == "QUEUED" }

// Moved reports whether the request came too late for a cell that has handed the user's bucket over. That
// is not final: Buy under the same id, with another permit where this one has run out, and the new home
// decides.
func (r Request) Moved() bool { return r.State == "REJECTED" && r.Reason == "MOVED" }

// Buy sends one attempt.
func (c *Client) Buy(ctx context.Context, token, campaign, sku string, t Try) (Request, Answer, error) {
	body, err := json.Marshal(struct {
		RequestID string `json:"request_id"`
		Quantity  int    `json:"quantity"`
		Permit    string `json:"permit"`
	}{t.RequestID, t.Quantity, t.Permit})
	if err != nil {
		return Request{}, Answer{}, fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	var out Request
	a, err := c.do(ctx, in{
		method: http.MethodPost, token: token, body: body, attempt: t.RetryAttempt,
		path: "/v1/campaigns/" + campaign + "/skus/" + sku + "/requests",
	}, &out)
	return out, a, err
}

// Status asks what became of a request; wait bounds a long poll, 0 answers at once.
func (c *Client) Status(ctx context.Context, token, campaign, sku, request, receipt string, wait time.Duration) (Request, Answer, error) {
	query := url.Values{}
	if receipt != "" {
		query.Set("receipt", receipt)
	}
	if wait > 0 {
		query.Set("wait", wait.String())
	}
	var out Request
	a, err := c.do(ctx, in{
		method: http.MethodGet, token: token, query: query.Encode(),
		path: "/v1/campaigns/" + campaign + "/skus/" + sku + "/requests/" + request,
	}, &out)
	return out, a, err
}

// Requests asks for the user's own requests in a campaign. complete is false when a cell could not be
// asked: a request that is missing may exist.
func (c *Client) Requests(ctx context.Context, token, campaign string) (requests []Request, complete bool, a Answer, err error) {
	var out struct {
		Requests []Request `json:"requests"`
		Complete bool      `json:"complete"`
	}
	a, err = c.do(ctx, in{method: http.MethodGet, token: token, path: "/v1/campaigns/" + campaign + "/requests"}, &out)
	return out.Requests, out.Complete, a, err
}
