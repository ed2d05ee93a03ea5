package api

import (
	"net/http"
	"net/url"
	"strings"
)

// handler answers one call.
type handler func(*Server, *call) reply

// endpoint is one row of contract §3.
type endpoint struct {
	method string
	path   string // segments; "{x}" matches one segment that is not empty
	name   string // label and span name
	handle handler
}

// endpoints are the calls there are.
var endpoints = []endpoint{
	{method: http.MethodGet, path: "/v1/campaigns/{campaign}", name: "get_campaign", handle: (*Server).getCampaign},
	{method: http.MethodGet, path: "/v1/campaigns/{campaign}/requests", name: "list_requests", handle: (*Server).listRequests},
	{method: http.MethodPost, path: "/v1/campaigns/{campaign}/skus/{sku}/permits", name: "claim_permit", handle: (*Server).claimPermit},
	{method: http.MethodPost, path: "/v1/campaigns/{campaign}/skus/{sku}/requests", name: "request", handle: (*Server).request},
	{method: http.MethodGet, path: "/v1/campaigns/{campaign}/skus/{sku}/requests/{request}", name: "get_request", handle: (*Server).getRequest},
	{method: http.MethodPost, path: "/v1/campaigns/{campaign}/skus/{sku}/entries", name: "enter_lottery", handle: (*Server).enterLottery},
	{method: http.MethodGet, path: "/v1/campaigns/{campaign}/skus/{sku}/entries/{entry}", name: "get_entry", handle: (*Server).getEntry},
	{method: http.MethodGet, path: "/v1/orders", name: "list_orders", handle: (*Server).listOrders},
	{method: http.MethodGet, path: "/v1/orders/{order}", name: "get_order", handle: (*Server).getOrder},
	{method: http.MethodPost, path: "/v1/orders/{order}/cancel", name: "cancel_order", handle: (*Server).cancelOrder},
	{method: http.MethodPost, path: "/v1/orders/{order}/payments", name: "start_payment", handle: (*Server).startPayment},
	{method: http.MethodPost, path: "/v1/payments/callbacks", name: "payment_callback", handle: (*Server).paymentCallback},
	{method: http.MethodGet, path: "/openapi.yaml", name: "openapi", handle: (*Server).openAPI},
}

// maxSegments is the length of the longest path there is.
const maxSegments = 7

// router finds endpoints by their segments. Names of calls are a closed set (K56).
type router struct {
	routes []compiled
}

type compiled struct {
	*endpoint
	segments []string
}

func newRouter() *router {
	r := &router{}
	for i := range endpoints {
		e := &endpoints[i]
		r.routes = append(r.routes, compiled{e, strings.Split(e.path[1:], "/")})
	}
	return r
}

// params are the segments that an endpoint leaves open, in order.
type params [3]string

// find returns the endpoint of a call. Where only the method is wrong, allow names the right ones.
func (r *router) find(method string, u *url.URL) (e *endpoint, p params, allow string) {
	segments, ok := split(u)
	if !ok {
		return nil, params{}, ""
	}
	if method == http.MethodHead {
		method = http.MethodGet
	}
	for _, c := range r.routes {
		open, ok := c.match(segments)
		if !ok {
			continue
		}
		if c.method == method {
			return c.endpoint, open, ""
		}
		allow = join(allow, c.method)
	}
	return nil, params{}, allow
}

func join(allow, method string) string {
	if allow == "" {
		return method + ", " + http.MethodOptions
	}
	return method + ", " + allow
}

func (c *compiled) match(segments []string) (open params, ok bool) {
	if len(segments) != len(c.segments) {
		return open, false
	}
	n := 0
	for i, want := range c.segments {
		switch {
		case want[0] == '{':
			if segments[i] == "" {
				return open, false
			}
			open[n] = segments[i]
			n++
		case want != segments[i]:
			return open, false
		}
	}
	return open, true
}

// split cuts the path as it was sent and decodes each segment by itself, so that an encoded slash
// is never a separator.
func split(u *url.URL) ([]string, bool) {
	path := u.EscapedPath()
	if len(path) == 0 || path[0] != '/' {
		return nil, false
	}
	segments := strings.SplitN(path[1:], "/", maxSegments+1)
	if len(segments) > maxSegments {
		return nil, false
	}
	for i, s := range segments {
		if strings.IndexByte(s, '%') < 0 {
			continue
		}
		plain, err := url.PathUnescape(s)
		if err != nil {
			return nil, false
		}
		segments[i] = plain
	}
	return segments, true
}
