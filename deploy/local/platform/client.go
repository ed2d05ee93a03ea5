package platform

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
)

// Client speaks to the supervisor of one data directory. It holds nothing open
// between calls and may be used by several goroutines.
type Client struct {
	http http.Client
}

// NewClient returns a client for the platform of dataDir; nothing is connected
// yet. With an endpoints file in hand: NewClient(DataDir(file)).
func NewClient(dataDir string) *Client {
	return &Client{http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dial(ctx, dataDir)
		},
	}}}
}

// Processes lists every process of the platform in the order of its start.
func (c *Client) Processes(ctx context.Context) ([]Process, error) {
	return c.call(ctx, http.MethodGet, pathProcesses, nil)
}

// Kill sends a signal to the processes that name means (Select) and returns
// them as they are afterwards. After KILL and TERM they stay down until Start,
// whatever --restart says; KILL returns when they have ended, TERM at once.
// ErrUnknownProcess; ErrNotAlive for STOP and CONT of a process that is down.
// To kill what is down already is no error: it is now kept down.
func (c *Client) Kill(ctx context.Context, name string, signal Signal) ([]Process, error) {
	return c.call(ctx, http.MethodPost, pathKill, order{Name: name, Signal: string(signal)})
}

// Start starts the processes that name means, unless they run, and returns when
// they have been started, not when they are ready: a process of a fenced cell,
// for one, is not ready until its cell was restored. Processes tells when it is.
// ErrUnknownProcess, ErrStopping.
func (c *Client) Start(ctx context.Context, name string) ([]Process, error) {
	return c.call(ctx, http.MethodPost, pathStart, order{Name: name})
}

func (c *Client) call(ctx context.Context, method, path string, body any) ([]Process, error) {
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return nil, fmt.Errorf("control request: %w", err)
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://platform"+path, bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("control request: %w", err)
	}
	answer, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("control: %w", err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		var f failure
		if err := readMessage(answer.Body, &f); err != nil {
			return nil, fmt.Errorf("control: %s: %w", answer.Status, err)
		}
		return nil, f.asError()
	}
	var l listing
	if err := readMessage(answer.Body, &l); err != nil {
		return nil, fmt.Errorf("control answer: %w", err)
	}
	return l.Processes, nil
}
