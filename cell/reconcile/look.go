package reconcile

import (
	"context"
	"maps"
	"slices"

	"github.com/cellquota/cellquota/cell/admission"
	"github.com/cellquota/cellquota/cell/events"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/telemetry"
)

// candidate is a reservation that seemed to differ, with what is needed to find its request in a mirror.
type candidate struct {
	id       ids.ReservationID
	campaign ids.CampaignID
	sku      ids.SKUID
	user     ids.UserID
	request  ids.RequestID
}

func candidateOf(f *facts) candidate {
	c := candidate{id: f.id}
	switch {
	case f.hold != nil:
		c.campaign, c.sku, c.user, c.request = f.hold.Campaign, f.hold.SKU, f.hold.User, f.hold.Request
	case f.inbox != nil:
		c.campaign, c.sku, c.user, c.request = f.inbox.Campaign, f.inbox.SKU, f.inbox.User, f.inbox.Request
	case len(f.entries) > 0:
		c.campaign, c.sku = f.entries[0].Campaign, f.entries[0].SKU
	}
	return c
}

// maxSuspects is how many wait for the second look: a shard whose every row differs must not fill memory.
const maxSuspects = 500

// suspects are what differed once.
type suspects struct {
	of       map[ids.ReservationID]candidate
	places   []shard.BuyerFact
	findings []shard.Finding // of immutable entries: seen once is seen
}

func newSuspects() *suspects { return &suspects{of: map[ids.ReservationID]candidate{}} }

func (s *suspects) add(f shard.Finding) { s.findings = append(s.findings, f) }

func (s *suspects) n() int { return len(s.of) + len(s.places) + len(s.findings) }

// suspect remembers an id for the second look, and looks at once when many wait.
func (w *walk) suspect(ctx context.Context, c candidate) error {
	w.suspects.of[c.id] = c
	if w.suspects.n() < maxSuspects {
		return nil
	}
	return w.lookAgain(ctx)
}

// lookAgain reads what differed anew, and keeps what still does.
func (w *walk) lookAgain(ctx context.Context) error {
	s := w.suspects
	w.suspects = newSuspects()
	if s.n() > 0 {
		if err := w.deps.Clock.Sleep(ctx, w.cfg.Confirm); err != nil {
			return err
		}
	}
	list := slices.SortedFunc(maps.Values(s.of), func(a, b candidate) int { return compare(a.id, b.id) })
	found, err := w.again(ctx, list)
	if err != nil {
		return err
	}
	found = append(found, s.findings...)
	if len(s.places) > 0 {
		places, err := w.shard.Places(ctx, s.places)
		if err != nil {
			return err
		}
		for _, b := range places {
			if b.Orphan {
				found = append(found, w.orphan(b))
			}
		}
	}
	for _, f := range found {
		if err := w.keep(ctx, f); err != nil {
			return err
		}
	}
	return nil
}

func compare(a, b ids.ReservationID) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func (w *walk) orphan(b shard.BuyerFact) shard.Finding {
	f := shard.Finding{
		ID: findingID(w.cell, shard.OrphanBuyerMark, "place", string(b.Campaign), b.ScopeKey, string(b.User)), Kind: shard.OrphanBuyerMark,
		Campaign: b.Campaign, User: b.User, Reservation: b.Reservation, Event: ids.EventID(b.Reservation), State: shard.FindingProposed, Action: shard.ActRelease,
		Detail: "the user's place is held by a reservation that is not there",
	}
	if b.ScopeKey != admission.AnySKU {
		f.SKU = ids.SKUID(b.ScopeKey)
	}
	return f
}

// again judges ids by the primary in one snapshot and by the mirrors as they are now.
func (w *walk) again(ctx context.Context, list []candidate) ([]shard.Finding, error) {
	all, err := w.see(ctx, list)
	if err != nil {
		return nil, err
	}
	var out []shard.Finding
	for _, f := range all {
		found := judge(f, w.bounds)
		for _, one := range found {
			w.explain(f, one)
		}
		out = append(out, found...)
	}
	return out, nil
}

// explain counts units that the mirror lacks, or has too many, and a finding names: they are no difference
// of quantities.
func (w *walk) explain(f *facts, one shard.Finding) {
	switch one.Kind {
	case shard.ClosedWithoutReturn:
	case shard.DuplicateAction, shard.MissingAction:
		w.explained[place{one.Campaign, one.SKU}] -= f.reservedTwice(one)
		return
	case shard.TakenWithoutEvent, shard.EventWithoutReservation:
		if f.mirror == nil || f.inbox != nil || f.mirror.trail == nil || f.mirror.trail.Outstanding {
			return // it is counted as parked, or as waiting
		}
	default:
		return
	}
	w.explained[place{one.Campaign, one.SKU}] += int64(one.Units)
}

// reservedTwice is how many units the shard counts as reserved more often (below 0: less often) than an
// admission took them of the mirror. A mirror that began since was made of the shard's count.
func (f *facts) reservedTwice(one shard.Finding) int64 {
	if f.mirror == nil || f.hold == nil {
		return 0
	}
	reserves := f.entriesOf("RESERVE")
	if one.Kind == shard.MissingAction && len(reserves) == 0 {
		return -int64(one.Units)
	}
	for _, e := range reserves {
		if one.Kind == shard.DuplicateAction && e.ID == one.Entry && e.StockVersion > f.mirror.base {
			return int64(e.Reserved)
		}
	}
	return 0
}

// see reads everything about some ids.
func (l *Loop) see(ctx context.Context, list []candidate) ([]*facts, error) {
	if len(list) == 0 {
		return nil, nil
	}
	// 1. The mirrors first: what they show, the shard decided before.
	sights, err := l.sights(ctx, list)
	if err != nil {
		return nil, err
	}
	// 2. The shard, in one snapshot.
	all, err := l.inShard(ctx, list)
	if err != nil {
		return nil, err
	}
	for _, f := range all {
		f.mirror = sights[f.id]
	}
	return all, nil
}

// inShard reads some ids from the primary.
func (l *Loop) inShard(ctx context.Context, list []candidate) ([]*facts, error) {
	names := make([]ids.ReservationID, len(list))
	for i, c := range list {
		names[i] = c.id
	}
	look, err := l.shard.Look(ctx, names)
	if err != nil {
		return nil, err
	}
	of := make(map[ids.ReservationID]*facts, len(list))
	out := make([]*facts, len(list))
	for i, id := range names {
		out[i] = &facts{id: id, pending: look.Pending[id], now: look.Now}
		of[id] = out[i]
	}
	for i := range look.Inbox {
		of[look.Inbox[i].Reservation].inbox = &look.Inbox[i]
	}
	for i := range look.Holds {
		of[look.Holds[i].Reservation].hold = &look.Holds[i]
	}
	for _, e := range look.Entries {
		of[e.Reservation].entries = append(of[e.Reservation].entries, e)
	}
	return out, nil
}

// sights reads the mirrors that admit. An id whose mirror does not answer has none: unknown is no
// difference.
func (l *Loop) sights(ctx context.Context, list []candidate) (map[ids.ReservationID]*sight, error) {
	out := map[ids.ReservationID]*sight{}
	groups := map[admission.Scope][]candidate{}
	scopes := map[place]admission.Scope{}
	for _, p := range l.scopes() {
		scopes[place{p.Scope.Campaign, p.SKU}] = p.Scope
	}
	for _, c := range list {
		if scope, ok := scopes[place{c.campaign, c.sku}]; ok && c.request != "" {
			groups[scope] = append(groups[scope], c)
		}
	}
	for scope, members := range groups {
		if err := l.sightsIn(ctx, scope, members, out); err != nil {
			if ctx.Err() != nil {
				return nil, err
			}
			l.log.InfoContext(ctx, "a mirror could not be compared", telemetry.Event, "reconcile_mirror_unread", telemetry.Error, err)
		}
	}
	return out, nil
}

func (l *Loop) sightsIn(ctx context.Context, scope admission.Scope, list []candidate, out map[ids.ReservationID]*sight) error {
	heads := map[ids.SKUID]admission.Facts{}
	for _, c := range list {
		if _, asked := heads[c.sku]; asked {
			continue
		}
		head, err := l.mirror.Facts(ctx, scope, c.sku)
		if err != nil || !head.Present || head.State != admission.Ready || !head.Whole {
			return err
		}
		heads[c.sku] = head
	}
	build := heads[list[0].sku].Build
	asks, users, effects := make([]admission.Seen, len(list)), make([]string, len(list)), make([]string, 0, 3*len(list))
	for i, c := range list {
		asks[i] = admission.Seen{SKU: c.sku, Request: c.request, User: c.user, Reservation: c.id}
		users[i] = string(c.user)
		effects = append(effects, events.SettleEffectID(string(c.id)), events.ReturnEffectID(string(c.id)), events.ReleaseEffectID(string(c.id)))
	}
	records, err := l.mirror.ReadRecords(ctx, scope, build, asks)
	if err != nil {
		return err
	}
	marks, err := l.mirror.ReadMarks(ctx, scope, build, users)
	if err != nil {
		return err
	}
	byKey, byUser := map[candidate]*admission.Seen{}, map[ids.UserID]*admission.Mark{}
	for i := range records {
		r := &records[i]
		byKey[candidate{sku: r.SKU, user: r.User, request: r.Request}] = r
	}
	for i := range marks {
		byUser[marks[i].User] = &marks[i]
	}
	for i, c := range list {
		if r := byKey[candidate{sku: c.sku, user: c.user, request: c.request}]; r != nil && r.Reservation == c.id {
			asks[i].StreamID, asks[i].AdmittedAtMS = r.StreamID, r.AdmittedAtMS
		}
	}
	trails, err := l.mirror.Trails(ctx, scope, build, asks)
	if err != nil {
		return err
	}
	given, err := l.mirror.GivenBack(ctx, scope, build, effects)
	if err != nil {
		return err
	}
	for i, c := range list {
		head := heads[c.sku]
		out[c.id] = &sight{
			build: build, base: head.BaseVersion, now: unixMilli(head.NowMS), record: byKey[candidate{sku: c.sku, user: c.user, request: c.request}],
			mark: byUser[c.user], trail: &trails[i], settled: given[3*i] || given[3*i+1], released: given[3*i+2],
		}
	}
	return nil
}
