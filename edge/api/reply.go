package api

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

// layer is who answered: a label of edge_requests_total.
type layer string

// The layers.
const (
	atHTTP        layer = "http"
	atCampaign    layer = "campaign"
	atIdentity    layer = "identity"
	atBody        layer = "body"
	atPermit      layer = "permit"
	atEligibility layer = "eligibility"
	atLimit       layer = "limit"
	atSoldOut     layer = "soldout"
	atRoute       layer = "route"
	atHome        layer = "home"
	atStatus      layer = "status"
	atEntry       layer = "entry"
	atOrder       layer = "order"
	atPayment     layer = "payment"
	atCallback    layer = "callback"
)

// reply is what a handler answers. Either problem is set, or status and body are.
type reply struct {
	layer    layer
	code     string // label; of a problem its Code
	status   int
	body     []byte
	location string
	cache    string // Cache-Control; "" is no-store
	media    string // Content-Type; "" is application/json
	allow    string // of 405
	replayed bool
	problem  *problem
}

// problem is an error as RFC 9457 has it.
type problem struct {
	layer     layer
	code      Code
	wait      time.Duration // 0: what the catalog says; negative: none
	statusURL string
	errors    []fieldError
}

// fieldError names one field and the rule it breaks.
type fieldError struct{ pointer, detail string }

// at is a problem of a layer with what the catalog says.
func at(l layer, c Code) *problem { return &problem{layer: l, code: c} }

// after sets how long to wait; the catalog's time is the least.
func (p *problem) after(d time.Duration) *problem {
	p.wait = d
	return p
}

// field adds a field's error.
func (p *problem) field(pointer, detail string) *problem {
	p.errors = append(p.errors, fieldError{pointer, detail})
	return p
}

// reply wraps the problem.
func (p *problem) reply() reply {
	return reply{layer: p.layer, code: string(p.code), status: Catalog[p.code].Status, problem: p}
}

// jittered is the time to wait, spread over half of it again, so that those who were refused
// together do not come back together (K44). 0: waiting does not help.
func (p *problem) jittered() time.Duration {
	d := p.wait
	if d == 0 {
		d = Catalog[p.code].Wait
	}
	if d <= 0 {
		return 0
	}
	d = max(d, shortestWait)
	return d + rand.N(min(d/2, longestSpread))
}

// Bounds of the jitter: nobody is told to come back sooner than the first, and the start of a sale
// is not spread by more than the second.
const (
	shortestWait  = 100 * time.Millisecond
	longestSpread = time.Second
)

// render writes the problem's body and its Retry-After.
func (p *problem) render(h http.Header, b []byte, lang Lang, trace string) []byte {
	entry := Catalog[p.code]
	o := newObject(b)
	o.str("type", "/problems/"+string(p.code))
	o.str("title", entry.Title[lang])
	o.int("status", int64(entry.Status))
	o.str("detail", entry.Tell[lang])
	o.str("code", string(p.code))
	o.str("trace_id", trace)
	if wait := p.jittered(); wait > 0 {
		h.Set("Retry-After", strconv.FormatInt(int64((wait+time.Second-1)/time.Second), 10))
		o.int("retry_after_ms", wait.Milliseconds())
	}
	o.opt("status_url", p.statusURL)
	if len(p.errors) > 0 {
		o.list("errors", len(p.errors), func(i int, e *object) {
			e.str("pointer", p.errors[i].pointer)
			e.str("detail", p.errors[i].detail)
		})
	}
	return o.end()
}
