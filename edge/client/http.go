package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
)

// Defaults of a Config.
const (
	defaultTimeout = 15 * time.Second
	defaultConns   = 512
	maxAnswer      = 1 << 20 // bytes of an answer that are read
)

// Config says how to call.
type Config struct {
	BaseURLs []string      // edges, "http://host:port"; used in turn; at least one
	Timeout  time.Duration // longest time of one call; 0: 15 s
	Conns    int           // connections to each edge; 0: 512
	Language string        // Accept-Language; "" sends none
	TLS      *tls.Config   // of https:// edges; nil: what the machine trusts
}

// Client calls edges. It is safe for concurrent use.
type Client struct {
	bases    []*url.URL
	timeout  time.Duration
	language []string
	http     http.Client
	tr       *http.Transport
	turn     atomic.Uint32
	buffers  sync.Pool
}

// New returns a client. Close it when done.
func New(cfg Config) (*Client, error) {
	if len(cfg.BaseURLs) == 0 {
		return nil, errors.New("client: no base URL")
	}
	c := &Client{timeout: cfg.Timeout, buffers: sync.Pool{New: func() any { return new(bytes.Buffer) }}}
	if c.timeout == 0 {
		c.timeout = defaultTimeout
	}
	conns := cfg.Conns
	if conns == 0 {
		conns = defaultConns
	}
	for _, s := range cfg.BaseURLs {
		u, err := url.Parse(s)
		if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
			return nil, fmt.Errorf("client: base URL %q: must be http://host:port or https://host:port", s)
		}
		c.bases = append(c.bases, u)
	}
	if cfg.Language != "" {
		c.language = []string{cfg.Language}
	}
	c.tr = &http.Transport{
		DialContext:         (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		MaxIdleConns:        conns * len(c.bases),
		MaxIdleConnsPerHost: conns,
		MaxConnsPerHost:     conns,
		IdleConnTimeout:     60 * time.Second,
		TLSClientConfig:     cfg.TLS,
		DisableCompression:  true,
		WriteBufferSize:     2 << 10,
		ReadBufferSize:      2 << 10,
	}
	c.http = http.Client{Transport: c.tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return c, nil
}

// Close closes idle connections.
func (c *Client) Close() { c.tr.CloseIdleConnections() }

// in is one call to be made.
type in struct {
	method  string
	path    string // escaped already
	query   string
	token   string // bearer; "" for none
	body    []byte
	attempt int    // Retry-Attempt; 0 for none
	sig     string // Payment-Signature; "" for none
}

var jsonMedia = []string{"application/json"}

// do makes one call and decodes a success into out.
func (c *Client) do(ctx context.Context, call in, out any) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	base := c.bases[int(c.turn.Add(1))%len(c.bases)]
	r := &http.Request{
		Method: call.method, Host: base.Host, Header: make(http.Header, 5),
		URL:   &url.URL{Scheme: base.Scheme, Host: base.Host, Path: call.path, RawQuery: call.query},
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
	if call.body != nil {
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(call.body)), int64(len(call.body))
		r.Header["Content-Type"] = jsonMedia
	}
	if call.token != "" {
		r.Header["Authorization"] = []string{"Bearer " + call.token}
	}
	if call.attempt > 0 {
		r.Header["Retry-Attempt"] = []string{fmt.Sprint(call.attempt)}
	}
	if call.sig != "" {
		r.Header["Payment-Signature"] = []string{call.sig}
	}
	if c.language != nil {
		r.Header["Accept-Language"] = c.language
	}
	response, err := c.http.Do(r.WithContext(ctx)) //nolint:bodyclose // drain closes it
	if err != nil {
		return Answer{}, unsent(err)
	}
	body, err := c.drain(response.Body)
	if err != nil {
		return Answer{Status: response.StatusCode}, fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	return read(response, body, out)
}

// drain reads a body to its end, so that the connection can be used again.
func (c *Client) drain(body io.ReadCloser) ([]byte, error) {
	defer func() { _ = body.Close() }()    // it was read, or its error is returned
	buf := c.buffers.Get().(*bytes.Buffer) //nolint:forcetypeassert // the pool's own
	defer c.buffers.Put(buf)
	buf.Reset()
	if _, err := buf.ReadFrom(io.LimitReader(body, maxAnswer)); err != nil {
		return nil, err
	}
	return bytes.Clone(buf.Bytes()), nil
}

// unsent tells a call that could not even connect from one whose fate is unknown.
func unsent(err error) error {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	return fmt.Errorf("%w: %w", ErrUnknown, err)
}
