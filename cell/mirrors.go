package cell

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cellquota/cellquota/cell/admission"
	"github.com/cellquota/cellquota/cell/campaigns"
	"github.com/cellquota/cellquota/cell/gate"
	"github.com/cellquota/cellquota/cell/gate/keeper"
	"github.com/cellquota/cellquota/cell/homes"
	"github.com/cellquota/cellquota/cell/rebuild"
	"github.com/cellquota/cellquota/cell/reconcile"
	"github.com/cellquota/cellquota/cell/relay"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/telemetry"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// ruleBook is the process's snapshot of campaigns; *campaigns.Reader is one.
type ruleBook interface {
	Current() *campaigns.Snapshot
	Changed() <-chan struct{}
}

// bucketReader reads which buckets of the shard a mirror may admit; *shard.Store is one.
type bucketReader interface {
	ShownBuckets(ctx context.Context, campaign ids.CampaignID) (homes.Table, error)
}

// expecting tells which build this process admits into; *admission.Client is one.
type expecting interface {
	Expected(scope admission.Scope) (ids.Build, bool)
}

// bucketsEvery is the time between two readings of who owns which bucket, beside those at a change of
// rules.
const bucketsEvery = 5 * time.Second

// mirrors turns the rules into the mirrors that this cell must have, with the buckets as the shard's
// rows have them. A campaign whose buckets were never read has no plan yet.
type mirrors struct {
	cfg    Config
	shard  bucketReader
	rules  ruleBook
	mirror expecting
	admits bool
	clock  clock.Clock
	log    *slog.Logger

	mu    sync.RWMutex
	owned map[ids.CampaignID]homes.Table
}

func newMirrors(cfg Config, s bucketReader, rules ruleBook, mirror expecting, admits bool, c clock.Clock, log *slog.Logger) *mirrors {
	return &mirrors{cfg: cfg, shard: s, rules: rules, mirror: mirror, admits: admits, clock: c, log: log, owned: map[ids.CampaignID]homes.Table{}}
}

// run reads the buckets anew at every change of rules, and from time to time.
func (m *mirrors) run(ctx context.Context) error {
	tick := m.clock.NewTicker(bucketsEvery)
	defer tick.Stop()
	for {
		changed := m.rules.Changed()
		wait := tick.C()
		if err := m.refresh(ctx); err != nil && ctx.Err() == nil {
			m.log.WarnContext(ctx, "buckets could not be read; the last ones hold", telemetry.Event, "buckets_read_failed", telemetry.Error, err.Error())
			retry := m.clock.NewTimer(shardPause)
			wait = retry.C()
			defer retry.Stop()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-wait:
		}
	}
}

func (m *mirrors) refresh(ctx context.Context) error {
	next := map[ids.CampaignID]homes.Table{}
	for _, c := range m.rules.Current().All() {
		table, err := m.shard.ShownBuckets(ctx, c.ID)
		if err != nil {
			return err
		}
		next[c.ID] = table
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.owned = next
	return nil
}

// mirrored are the campaigns that have a mirror (those of admission: DATABASE have none): until they are
// settled, because what is closed and given back still goes through it.
func (m *mirrors) mirrored() []*campaigns.Campaign {
	m.mu.RLock()
	defer m.mu.RUnlock()
	var out []*campaigns.Campaign
	for _, c := range m.rules.Current().All() {
		if _, read := m.owned[c.ID]; read && !c.Direct && c.State != pb.CampaignState_CAMPAIGN_STATE_SETTLED {
			out = append(out, c)
		}
	}
	return out
}

// directOnly tells that all this cell sells is sold by its shard alone.
func (m *mirrors) directOnly() bool {
	sells := false
	for _, c := range m.rules.Current().All() {
		if c.State == pb.CampaignState_CAMPAIGN_STATE_SETTLED {
			continue
		}
		if !c.Direct {
			return false
		}
		sells = true
	}
	return sells
}

// plans are the mirrors for the rebuild loop.
func (m *mirrors) plans() []rebuild.Plan {
	var out []rebuild.Plan
	for _, c := range m.mirrored() {
		for _, s := range scopesOf(c) {
			out = append(out, m.plan(c, s))
		}
	}
	return out
}

func (m *mirrors) plan(c *campaigns.Campaign, s admission.Scope) rebuild.Plan {
	p := rebuild.Plan{
		Scope: s, Version: c.Version, StreamMax: int64(m.cfg.Admission.StreamMax),
		Bound: int64(m.cfg.Gate.MinRate * maxWait(c).Seconds()),
		Window: admission.Window{
			OpenAtMS: c.OpenAt.UnixMilli(), CloseAtMS: c.CloseAt.UnixMilli(),
			KeepUntilMS: c.CloseAt.Add(m.cfg.Rebuild.Retention).UnixMilli(),
		},
	}
	if s.SKU != "" {
		p.SKUs = []ids.SKUID{s.SKU}
	} else {
		for _, sku := range c.SKUs() {
			p.SKUs = append(p.SKUs, sku.ID)
		}
	}
	m.mu.RLock()
	table := m.owned[c.ID]
	m.mu.RUnlock()
	for _, domain := range table.Domains() {
		p.Buckets = append(p.Buckets, admission.DomainBuckets{Domain: domain, Set: admission.BucketSet(table.Bitmap(domain))})
	}
	return p
}

// scopes are the mirrors for the sweeper.
func (m *mirrors) scopes() []admission.Scope {
	var out []admission.Scope
	for _, c := range m.mirrored() {
		out = append(out, scopesOf(c)...)
	}
	return out
}

// baselines are the mirrors that the shard may stand in for while Redis is away.
func (m *mirrors) baselines() []admission.Scope {
	var out []admission.Scope
	for _, c := range m.mirrored() {
		if c.Baseline > 0 && c.Sells() {
			out = append(out, scopesOf(c)...)
		}
	}
	return out
}

// relayPlaces are the SKUs for the scanner.
func (m *mirrors) relayPlaces() []relay.Place {
	var out []relay.Place
	for _, c := range m.mirrored() {
		for _, sku := range c.SKUs() {
			out = append(out, relay.Place{Scope: scopeOf(c, sku.ID), SKU: sku.ID})
		}
	}
	return out
}

// ledgers are the SKUs whose mirrors reconcile compares.
func (m *mirrors) ledgers() []reconcile.Place {
	var out []reconcile.Place
	for _, p := range m.relayPlaces() {
		out = append(out, reconcile.Place(p))
	}
	return out
}

// gatePlaces are the SKUs for the gate's driver, with the rules of their gates.
func (m *mirrors) gatePlaces() []keeper.Place {
	var out []keeper.Place
	why, paused := m.rules.Current().Paused()
	for _, c := range m.mirrored() {
		wait := maxWait(c)
		rules := gate.Rules{
			MaxWait: wait, MinRate: m.cfg.Gate.MinRate, Capacity: m.cfg.Gate.Capacity, PauseAfter: max(pauseWaits*wait, m.cfg.Gate.PauseAfter),
			MaxFailure: maxFailure, PaymentWindow: paymentWindow(c),
		}
		for _, sku := range c.SKUs() {
			out = append(out, keeper.Place{Scope: scopeOf(c, sku.ID), SKU: sku.ID, Rules: rules, Final: sku.Final, Paused: paused || sku.Paused || !c.Sells(), Why: why})
		}
	}
	return out
}

const (
	defaultMaxWait = 2 * time.Second // gate.max_wait where a campaign does not say it
	pauseWaits     = 5               // waits after which a gate lets nothing more in
	maxFailure     = 0.1             // share of failed batches that is still calm
)

func maxWait(c *campaigns.Campaign) time.Duration {
	if w := c.Spec.GetGate().GetMaxWait().AsDuration(); w > 0 {
		return w
	}
	return defaultMaxWait
}

// paymentWindow is the shortest time that any customer of a campaign has to pay.
func paymentWindow(c *campaigns.Campaign) time.Duration {
	window := c.Spec.GetReservationTtl().AsDuration()
	for _, d := range c.Spec.GetHolds().GetPaymentTtlByRisk() {
		if ttl := d.AsDuration(); ttl > 0 {
			window = min(window, ttl)
		}
	}
	return window
}

// ready tells whether this process serves a campaign: its rules are in the snapshot, or it would not
// be asked; the mirrors it admits into are built by its library.
func (m *mirrors) ready(c *campaigns.Campaign) (ok bool, detail string) {
	if !m.admits || c.Direct || c.State == pb.CampaignState_CAMPAIGN_STATE_SETTLED {
		return true, ""
	}
	for _, s := range scopesOf(c) {
		if _, ok := m.mirror.Expected(s); !ok {
			return false, fmt.Sprintf("the mirror {%s} is not built yet", s.Tag())
		}
	}
	return true, ""
}

// expected tells whether this process admits into every mirror that the rules ask for.
func (m *mirrors) expected() bool {
	for _, s := range m.scopes() {
		if _, ok := m.mirror.Expected(s); !ok {
			return false
		}
	}
	return true
}

// scopeOf is the mirror of a SKU by its campaign's purchase scope.
func scopeOf(c *campaigns.Campaign, sku ids.SKUID) admission.Scope {
	if c.PerSKU {
		return admission.Scope{Campaign: c.ID, SKU: sku}
	}
	return admission.Scope{Campaign: c.ID}
}

// scopesOf are the mirrors of a campaign: one, or one for each SKU.
func scopesOf(c *campaigns.Campaign) []admission.Scope {
	if !c.PerSKU {
		return []admission.Scope{{Campaign: c.ID}}
	}
	var out []admission.Scope
	for _, sku := range c.SKUs() {
		out = append(out, scopeOf(c, sku.ID))
	}
	return out
}
