package history

import (
	"context"
	"fmt"
	"iter"
	"sort"
)

// Row is one shard's word on one request.
type Row struct {
	Cell        string
	Reservation string
	// Outcome is the inbox's: ORDERED, REJECTED, RELEASED, PARKED, or empty without an inbox row.
	Outcome  string
	Reason   string
	Order    string
	State    string // order state, empty without an order
	Quantity int32
}

// Resolver answers what the shards know. Resolve answers one entry per key, in order; unreachable
// names cells that did not answer. MessagesFrom: an admission below it without a row reads
// REJECTED/CELL_FENCED.
type Resolver interface {
	Resolve(ctx context.Context, keys []Key) (rows [][]Row, unreachable map[string]string, err error)
	MessagesFrom(cell string) int64
}

// Breach names one sentence of the story that cannot be true.
type Breach struct {
	Invariant string
	Key       Key
	Detail    string
}

// Report is the verdict. Unchecked names requests whose shard did not answer.
type Report struct {
	Records   int64
	Requests  int64
	Promised  int64
	Orders    int64
	Unknown   int64
	Breaches  []Breach
	Unchecked []Breach
	// Truncated: more breaches than MaxBreaches were found.
	Truncated bool
}

// MaxBreaches bounds what a report lists.
const MaxBreaches = 1000

// batch is how many requests are resolved per call.
const batch = 500

// Check folds the records and compares them with the shards. It is meant for after quiet: a request
// that was promised an outcome and has none yet is a breach.
func Check(ctx context.Context, records iter.Seq2[Record, error], shards Resolver) (Report, error) {
	c := checker{subjects: map[Key]*subject{}, buyers: map[buyer]string{}, owners: map[string]Key{}}
	for r, err := range records {
		if err != nil {
			return Report{}, err
		}
		c.fold(r)
	}
	keys := make([]Key, 0, len(c.subjects))
	for k := range c.subjects {
		keys = append(keys, k)
	}
	sort.Slice(keys, func(i, j int) bool { return less(keys[i], keys[j]) })
	c.report.Requests = int64(len(keys))
	for from := 0; from < len(keys); from += batch {
		part := keys[from:min(from+batch, len(keys))]
		rows, unreachable, err := shards.Resolve(ctx, part)
		if err != nil {
			return Report{}, fmt.Errorf("history: resolve requests %d to %d: %w", from, from+len(part), err)
		}
		if len(rows) != len(part) {
			return Report{}, fmt.Errorf("history: asked for %d requests, %d were answered", len(part), len(rows))
		}
		for i, k := range part {
			c.judge(k, rows[i], unreachable, shards)
		}
	}
	c.judgePayments()
	return c.report, nil
}

// buyer is whoever may have one order.
type buyer struct{ campaign, scope, user string }

type checker struct {
	subjects map[Key]*subject
	// buyers: the order each buyer was found to have. owners: which request each order belongs to.
	buyers map[buyer]string
	owners map[string]Key
	// states of the orders found, for what callbacks promised.
	states   map[string]string
	promises []promise
	report   Report
}

// promise is what a callback's or cancel's answer said about an order.
type promise struct {
	order, state string
	key          Key
}

func (c *checker) fold(r Record) {
	c.report.Records++
	if r.Unknown {
		c.report.Unknown++
	}
	if (r.Op == OpCallback || r.Op == OpCancel || r.Op == OpOrder) && r.Status == 200 && r.Order != "" {
		if r.State == "PAID" || r.State == "CLOSED" {
			c.promises = append(c.promises, promise{order: r.Order, state: r.State, key: Key{Campaign: r.Campaign, SKU: r.SKU, User: r.User, Request: r.Request}})
		}
		return
	}
	key := r.RequestKey()
	if key == (Key{}) || (r.Op != OpRequest && r.Op != OpStatus) {
		return
	}
	s, ok := c.subjects[key]
	if !ok {
		s = &subject{scope: r.Scope}
		c.subjects[key] = s
	}
	if s.scope == "" {
		s.scope = r.Scope
	}
	s.fold(r)
}

// judge compares what the clients saw of one request with what the shards have.
func (c *checker) judge(k Key, rows []Row, unreachable map[string]string, shards Resolver) {
	s := c.subjects[k]
	if s.promised {
		c.report.Promised++
	}
	c.judgeOneness(k, s, rows)
	decided := false
	for _, row := range rows {
		if row.Order != "" {
			c.judgeOrder(k, s, row)
		}
		decided = decided || row.Order != "" || row.Outcome != ""
	}
	if s.notFound && s.promised {
		c.breach("I6", k, "status asked with the receipt of its 202 answered 404")
	}
	if !s.promised || decided {
		return
	}
	switch {
	case s.cell != "" && unreachable[s.cell] != "":
		c.unchecked("I6", k, "cell "+s.cell+": "+unreachable[s.cell])
	case s.cell == "" && len(unreachable) > 0:
		c.unchecked("I6", k, "its cell is not known and some shards did not answer")
	case s.cell != "" && s.fence > 0 && s.fence < shards.MessagesFrom(s.cell):
		// Reads as REJECTED/CELL_FENCED.
	case s.cell != "" && s.fence == 0 && shards.MessagesFrom(s.cell) > 1:
		c.unchecked("I6", k, "cell "+s.cell+" was fenced, and the receipt's fence version is not known")
	default:
		c.breach("I6", k, fmt.Sprintf("answered 202 by cell %q under fence version %d, and no shard has an outcome", s.cell, s.fence))
	}
}

// judgeOneness demands one reservation and one order per request over all answers and shards.
func (c *checker) judgeOneness(k Key, s *subject, rows []Row) {
	var orders []string
	for _, row := range rows {
		orders = addOnce(orders, row.Order)
	}
	if len(orders) > 1 {
		c.breach("I4", k, fmt.Sprintf("one request has %d orders: %v", len(orders), orders))
	}
	for _, seen := range s.orders {
		if len(orders) > 0 && addOnceLen(orders, seen) != len(orders) {
			c.breach("I6", k, fmt.Sprintf("clients were told order %s, the shards have %v", seen, orders))
		}
	}
	if len(s.orders) > 0 && len(orders) == 0 && len(rows) > 0 {
		c.breach("I6", k, fmt.Sprintf("clients were told order %s, the shards have none", s.orders[0]))
	}
}

func addOnceLen(list []string, v string) int { return len(addOnce(list[:len(list):len(list)], v)) }

// judgeOrder checks one committed order against what was asked and told.
func (c *checker) judgeOrder(k Key, s *subject, row Row) {
	c.report.Orders++
	if c.states == nil {
		c.states = map[string]string{}
	}
	c.states[row.Order] = row.State
	if other, ok := c.owners[row.Order]; ok && other != k {
		c.breach("I4", k, fmt.Sprintf("order %s belongs to request %s of user %s too", row.Order, other.Request, other.User))
	}
	c.owners[row.Order] = k
	b := buyer{campaign: k.Campaign, scope: s.scope, user: k.User}
	if b.scope == "" {
		b.scope = k.SKU
	}
	if have, ok := c.buyers[b]; ok && have != row.Order {
		c.breach("I4", k, fmt.Sprintf("user has two orders in scope %s: %s and %s", b.scope, have, row.Order))
	}
	c.buyers[b] = row.Order
	if !s.promised && !s.uncertain {
		c.breach("I6", k, fmt.Sprintf("every attempt was refused, and cell %s has order %s", row.Cell, row.Order))
	}
	if s.quantity > 0 && row.Quantity != s.quantity && !s.conflicting {
		c.breach("I6", k, fmt.Sprintf("asked for %d, order %s holds %d", s.quantity, row.Order, row.Quantity))
	}
	if s.rejected != "" {
		c.breach("I6", k, fmt.Sprintf("was told REJECTED/%s, and cell %s has order %s", s.rejected, row.Cell, row.Order))
	}
	if s.paid && row.State != "PAID" {
		c.breach("I7", k, fmt.Sprintf("was told PAID, order %s is %s", row.Order, row.State))
	}
	if s.closed && row.State != "CLOSED" {
		c.breach("I7", k, fmt.Sprintf("was told CLOSED, order %s is %s", row.Order, row.State))
	}
}

// judgePayments holds callbacks and cancels to their word: what was PAID or CLOSED stays so.
func (c *checker) judgePayments() {
	for _, p := range c.promises {
		if state, ok := c.states[p.order]; ok && state != p.state {
			c.breach("I7", p.key, fmt.Sprintf("an answer said that order %s is %s, the shard says %s", p.order, p.state, state))
		}
	}
}

func (c *checker) breach(invariant string, k Key, detail string) {
	if len(c.report.Breaches) >= MaxBreaches {
		c.report.Truncated = true
		return
	}
	c.report.Breaches = append(c.report.Breaches, Breach{Invariant: invariant, Key: k, Detail: detail})
}

func (c *checker) unchecked(invariant string, k Key, detail string) {
	if len(c.report.Unchecked) >= MaxBreaches {
		c.report.Truncated = true
		return
	}
	c.report.Unchecked = append(c.report.Unchecked, Breach{Invariant: invariant, Key: k, Detail: detail})
}

func less(a, b Key) bool {
	if a.Campaign != b.Campaign {
		return a.Campaign < b.Campaign
	}
	if a.SKU != b.SKU {
		return a.SKU < b.SKU
	}
	if a.User != b.User {
		return a.User < b.User
	}
	return a.Request < b.Request
}
