package admission

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cellquota/cellquota/internal/ids"
	cellquotav1 "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Seen is a request's record as a walk over a mirror met it.
type Seen struct {
	SKU          ids.SKUID
	Request      ids.RequestID
	User         ids.UserID
	Reservation  ids.ReservationID
	State        cellquotav1.RequestState
	Quantity     int32
	AdmittedAtMS int64
	StreamID     string
}

// SeenPage is a page of a walk over the records of one build.
type SeenPage struct {
	Build   ids.Build // zero: there is no mirror
	Records []Seen
	Now     time.Time // Redis TIME
	Next    uint64    // where the next page begins; 0: this was the last
}

// RecordPage reads a page of the records of the present build; about limit of them, possibly none. A
// record that is there all the time is met at least once in a walk from 0 to 0. It costs a step of the
// whole keyspace's walk, so the caller paces it.
func (c *Client) RecordPage(ctx context.Context, scope Scope, cursor uint64, limit int64) (SeenPage, error) {
	build, err := c.metaBuild(ctx, scope)
	if err != nil || build.IsZero() {
		return SeenPage{}, err
	}
	page := SeenPage{Build: build}
	if page.Now, err = c.nowOf(ctx, scope); err != nil {
		return page, err
	}
	node, err := c.maint.MasterOf(ctx, scope.metaKey())
	if err != nil {
		return page, translate(err)
	}
	prefix := string(scope.at(build)) + "record:"
	keys, next, err := node.Scan(ctx, cursor, prefix+"*", limit).Result()
	if err != nil {
		return page, translate(err)
	}
	page.Next = next
	for _, key := range keys {
		if r, ok := recordOf(strings.TrimPrefix(key, prefix)); ok {
			page.Records = append(page.Records, r)
		}
	}
	page.Records, err = c.ReadRecords(ctx, scope, build, page.Records)
	return page, err
}

// recordOf reads SKU:REQUEST:USER; only the user is free text.
func recordOf(name string) (Seen, bool) {
	sku, rest, ok := strings.Cut(name, ":")
	request, user, also := strings.Cut(rest, ":")
	return Seen{SKU: ids.SKUID(sku), Request: ids.RequestID(request), User: ids.UserID(user)}, ok && also
}

// ReadRecords fills in the records of requests; those that are not there are left out.
func (c *Client) ReadRecords(ctx context.Context, scope Scope, build ids.Build, of []Seen) ([]Seen, error) {
	if len(of) == 0 {
		return nil, nil
	}
	k, pipe := scope.at(build), c.maint.Pipeline()
	answers := make([]*redis.SliceCmd, len(of))
	for i, r := range of {
		answers[i] = pipe.HMGet(ctx, k.record(r.SKU, r.Request, r.User), "state", "reservation", "quantity", "admitted_at_ms", "stream_id")
	}
	if _, err := pipe.Exec(ctx); err != nil && !isNil(err) {
		return nil, translate(err)
	}
	out := make([]Seen, 0, len(of))
	for i, r := range of {
		v := answers[i].Val()
		state, there := v[0].(string)
		if !there {
			continue
		}
		reservation, _ := v[1].(string)
		r.State, r.Reservation = cellquotav1.RequestState(whole(state)), ids.ReservationID(reservation)
		quantity, _ := v[2].(string)
		at, _ := v[3].(string)
		r.Quantity, r.AdmittedAtMS = int32(whole(quantity)), whole(at)
		r.StreamID, _ = v[4].(string)
		out = append(out, r)
	}
	return out, nil
}

// whole reads a number that a script wrote; what is none reads 0.
func whole(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

// MarkPage reads a page of the users' marks of a build.
func (c *Client) MarkPage(ctx context.Context, scope Scope, build ids.Build, cursor uint64, limit int64) (marks []Mark, next uint64, err error) {
	pairs, next, err := c.maint.HScan(ctx, scope.at(build).marks(), cursor, "", limit).Result()
	if err != nil {
		return nil, 0, translate(err)
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		if m, ok := markOf(pairs[i], pairs[i+1]); ok {
			marks = append(marks, m)
		}
	}
	return marks, next, nil
}

// ReadMarks reads the marks of users; those without one are left out.
func (c *Client) ReadMarks(ctx context.Context, scope Scope, build ids.Build, users []string) ([]Mark, error) {
	if len(users) == 0 {
		return nil, nil
	}
	texts, err := c.maint.HMGet(ctx, scope.at(build).marks(), users...).Result()
	if err != nil {
		return nil, translate(err)
	}
	var out []Mark
	for i, user := range users {
		if text, there := texts[i].(string); there {
			if m, ok := markOf(user, text); ok {
				out = append(out, m)
			}
		}
	}
	return out, nil
}

// markOf reads STATE|SKU|REQUEST|RESERVATION|QUANTITY.
func markOf(user, text string) (Mark, bool) {
	part := strings.Split(text, "|")
	if user == guard || len(part) != 5 {
		return Mark{}, false
	}
	return Mark{
		User: ids.UserID(user), State: cellquotav1.RequestState(whole(part[0])), SKU: ids.SKUID(part[1]), Request: ids.RequestID(part[2]),
		Reservation: ids.ReservationID(part[3]), Quantity: int32(whole(part[4])),
	}, true
}

// Trail is what a mirror still has of an admission without an outcome.
type Trail struct {
	Granted          // with its message, when one is left
	Outstanding bool // it waits for its outcome
	InStream    bool // the log has not acknowledged it
}

// Trails reads what is left of admissions of a build.
func (c *Client) Trails(ctx context.Context, scope Scope, build ids.Build, of []Seen) ([]Trail, error) {
	k, pipe := scope.at(build), c.maint.Pipeline()
	waits, messages := make([]*redis.FloatCmd, len(of)), make([]*redis.StringCmd, len(of))
	entries := make([]*redis.XMessageSliceCmd, len(of))
	for i, r := range of {
		waits[i] = pipe.ZScore(ctx, k.outstanding(r.SKU), string(r.Reservation))
		messages[i] = pipe.HGet(ctx, k.pending(r.SKU), string(r.Reservation))
		if r.StreamID != "" {
			entries[i] = pipe.XRangeN(ctx, k.stream(), r.StreamID, r.StreamID, 1)
		}
	}
	if pipe.Len() == 0 {
		return nil, nil
	}
	if _, err := pipe.Exec(ctx); err != nil && !isNil(err) {
		return nil, translate(err)
	}
	out := make([]Trail, len(of))
	for i, r := range of {
		out[i].Granted = Granted{Scope: scope, Build: build, SKU: r.SKU, User: r.User, Request: r.Request, Reservation: r.Reservation, AdmittedAtMS: r.AdmittedAtMS}
		out[i].Outstanding = waits[i].Err() == nil
		_, message, _ := strings.Cut(messages[i].Val(), "|")
		if entries[i] != nil && len(entries[i].Val()) == 1 {
			out[i].InStream = true
			if message == "" {
				message, _ = entries[i].Val()[0].Values["m"].(string)
			}
		}
		if message == "" {
			continue
		}
		if g, err := grantedFrom(scope, []byte(message)); err == nil {
			out[i].Granted = g
		}
		if out[i].InStream {
			out[i].StreamID = r.StreamID
		}
	}
	return out, nil
}

// GivenBack tells which effects moved the stock of a build.
func (c *Client) GivenBack(ctx context.Context, scope Scope, build ids.Build, effects []string) ([]bool, error) {
	if len(effects) == 0 {
		return nil, nil
	}
	list := make([]any, len(effects))
	for i, e := range effects {
		list[i] = e
	}
	out, err := c.maint.SMIsMember(ctx, scope.at(build).applied(), list...).Result()
	return out, translate(err)
}
