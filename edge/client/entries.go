package client

import (
	"context"
	"net/http"
	"time"
)

// Entry is one's part in the lottery of a SKU.
type Entry struct {
	EntryID   string    `json:"entry_id"`
	State     string    `json:"state"` // ENTERED, WON, LOST
	Message   string    `json:"message"`
	Tickets   int       `json:"tickets"`
	EnteredAt time.Time `json:"entered_at"`
	StatusURL string    `json:"status_url"`
}

// Enter takes part in the draw of a SKU; a repeat is the same entry. Who got no answer repeats with
// attempt 1, 2, …: such a repeat is answered also when entry has ended meanwhile.
func (c *Client) Enter(ctx context.Context, token, campaign, sku string, attempt int) (Entry, Answer, error) {
	var out Entry
	a, err := c.do(ctx, in{method: http.MethodPost, token: token, path: "/v1/campaigns/" + campaign + "/skus/" + sku + "/entries", attempt: attempt}, &out)
	return out, a, err
}

// Entry asks how one's entry stands.
func (c *Client) Entry(ctx context.Context, token, campaign, sku, entry string) (Entry, Answer, error) {
	var out Entry
	a, err := c.do(ctx, in{method: http.MethodGet, token: token, path: "/v1/campaigns/" + campaign + "/skus/" + sku + "/entries/" + entry}, &out)
	return out, a, err
}
