package risk

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// maxAnswer bounds a judge's answer, in bytes.
const maxAnswer = 1 << 20

// HTTP is a judge behind one URL: events are POSTed as {"events": […]}, the answer is 2xx with
// {"verdicts": […]} or no body. Close it when done.
type HTTP struct {
	url, token string
	client     http.Client
}

// NewHTTP returns the judge at url. token, if not "", is sent as a bearer token.
func NewHTTP(url, token string, timeout time.Duration) *HTTP {
	return &HTTP{url: url, token: token, client: http.Client{
		Timeout: timeout, Transport: &http.Transport{MaxIdleConns: 1, MaxConnsPerHost: 1, IdleConnTimeout: time.Minute},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // the token is for nobody else
	}}
}

// Close closes its connection.
func (h *HTTP) Close() { h.client.CloseIdleConnections() }

// Judge implements Judge.
func (h *HTTP) Judge(ctx context.Context, events []Event) ([]Verdict, error) {
	body, err := json.Marshal(struct {
		Events []Event `json:"events"`
	}{events})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if h.token != "" {
		req.Header.Set("Authorization", "Bearer "+h.token)
	}
	res, err := h.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }() // it was read, or its error is returned
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	switch {
	case err != nil:
		return nil, err
	case res.StatusCode/100 != 2:
		return nil, fmt.Errorf("status %d", res.StatusCode)
	case len(answer) == 0:
		return nil, nil
	}
	var out struct {
		Verdicts []Verdict `json:"verdicts"`
	}
	if err := json.Unmarshal(answer, &out); err != nil {
		return nil, fmt.Errorf("the answer is no list of verdicts: %w", err)
	}
	return out.Verdicts, nil
}
