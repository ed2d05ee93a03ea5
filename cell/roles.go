package cell

import (
	"context"
	"fmt"

	"github.com/cellquota/cellquota/cell/admission"
	"github.com/cellquota/cellquota/cell/baseline"
	"github.com/cellquota/cellquota/cell/closer"
	"github.com/cellquota/cellquota/cell/events"
	"github.com/cellquota/cellquota/cell/gate/keeper"
	"github.com/cellquota/cellquota/cell/orders"
	"github.com/cellquota/cellquota/cell/outbox"
	"github.com/cellquota/cellquota/cell/payment"
	"github.com/cellquota/cellquota/cell/payment/provider"
	"github.com/cellquota/cellquota/cell/payment/refund"
	"github.com/cellquota/cellquota/cell/rebuild"
	"github.com/cellquota/cellquota/cell/reconcile"
	"github.com/cellquota/cellquota/cell/relay"
	"github.com/cellquota/cellquota/cell/retention"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/lifecycle"
)

// The roles of a process (contract, section 1).
const (
	roleAdmission = "admission"
	roleRelay     = "relay"
	roleOrders    = "orders"
	roleCloser    = "closer"
	roleOutbox    = "outbox"
	roleReconcile = "reconcile"
)

// start makes and starts the loops of one role. Payments, status and facts are served by every process.
func (p *parts) start(group *lifecycle.Group, role string) error {
	switch role {
	case roleAdmission:
		return p.startAdmission(group)
	case roleRelay:
		return p.startRelay(group)
	case roleOrders:
		return p.startOrders(group)
	case roleCloser:
		return p.startCloser(group)
	case roleOutbox:
		return p.startOutbox(group)
	case roleReconcile:
		group.Go("reconcile", p.ledgers.Run)
		return nil
	default:
		return fmt.Errorf("no such role")
	}
}

// startAdmission keeps the mirrors fit and their gates judged; every process that admits does.
func (p *parts) startAdmission(group *lifecycle.Group) error {
	loop, err := rebuild.New(rebuild.Config{
		Owner: p.instance, Interval: p.cfg.Rebuild.Interval, Drain: p.cfg.Rebuild.Drain, Timeout: p.cfg.Rebuild.Timeout,
	}, p.shard, p.mirror, p.producer, p.sweeper, p.mirrors.plans, rebuild.Deps{Clock: p.clock, Logger: p.log, Registry: p.registry})
	if err != nil {
		return err
	}
	p.writer = &leads{lock: p.shard, redis: p.health.redis, mirrors: p.mirrors.expected, clock: p.clock, log: p.log}
	driver, err := keeper.New(p.cfg.Gate.Interval, p.mirror, keeper.Deps{
		Clock: p.clock, Logger: p.log, Registry: p.registry, Places: p.mirrors.gatePlaces,
		Signals: p.health.signals, Leads: p.writer.held.Load,
	})
	if err != nil {
		return err
	}
	p.gates = gates{driver, p.rules}
	p.direct = admission.NewDirect(p.shard, admission.DirectConfig{Batch: p.cfg.Direct.Batch, Queue: p.cfg.Direct.Queue, Timeout: p.cfg.Direct.Timeout}, p.mirror)
	p.baselines = baseline.New(baseline.Config{
		Owner: p.instance, Interval: p.cfg.Rebuild.Interval, After: p.cfg.Direct.BaselineAfter, Timeout: p.cfg.Rebuild.Timeout,
	}, p.shard, p.mirror, p.producer, p.mirrors.baselines, p.clock, p.log)
	group.Go("direct", p.direct.Run)
	group.Go("baseline", p.baselines.Run)
	group.Go("gate-writer", p.writer.run)
	group.Go("rebuild", loop.Run)
	group.Go("gate", driver.Run)
	return nil
}

func (p *parts) startRelay(group *lifecycle.Group) error {
	scanner := relay.NewScanner(relay.ScanConfig{After: p.cfg.Relay.ScanAfter, Interval: p.cfg.Relay.ScanInterval},
		p.mirror, decider{p.shard}, p.producer, p.mirrors.relayPlaces, p.relayed)
	group.Go("sweeper", p.sweeper.Run)
	group.Go("scanner", scanner.Run)
	return nil
}

func (p *parts) startOrders(group *lifecycle.Group) error {
	consumer, err := orders.New(orders.Config{
		Cell: p.cell, Brokers: p.cfg.Kafka.Brokers, Topic: p.cfg.Kafka.Topic, BatchMax: p.cfg.Orders.BatchMax, BatchWait: p.cfg.Orders.BatchWait,
		SessionTimeout: p.cfg.Orders.SessionTimeout, Member: p.cfg.Orders.Member,
	}, p.shard, p.clock, p.log, p.registry, p.kafka...)
	if err != nil {
		return err
	}
	group.Go("orders", consumer.Run)
	return nil
}

func (p *parts) startCloser(group *lifecycle.Group) error {
	channel := p.channel()
	cancelled := func() []ids.CampaignID { return p.rules.Current().Cancelled() }
	loop, err := closer.New(p.shard, channel, closer.Config{
		Interval: p.cfg.Closer.Interval, Batch: p.cfg.Closer.Batch, Cancelled: cancelled,
		Waits: shard.CloseWaits{Payment: p.cfg.Payment.Grace, Restore: p.cfg.Closer.RestoreGrace, Attempt: p.cfg.Payment.AttemptGrace},
	}, p.clock, p.log, p.registry)
	if err != nil {
		return err
	}
	refunds, err := refund.New(p.shard, channel, refund.Config{
		Interval: p.cfg.Refund.Interval, Batch: p.cfg.Refund.Batch, AttemptGrace: p.cfg.Payment.AttemptGrace, Cancelled: cancelled,
		Pace: shard.RefundPace{First: p.cfg.Refund.BackoffMin, Longest: p.cfg.Refund.BackoffMax},
	}, p.clock, p.log, p.registry)
	if err != nil {
		return err
	}
	group.Go("closer", loop.Run)
	group.Go("refunds", refunds.Run)
	return nil
}

// channel is the payment channel that is asked about attempts and for refunds.
func (p *parts) channel() provider.Provider {
	if p.cfg.Provider.Kind != "http" {
		return &provider.Sandbox{RefundAfter: p.cfg.Provider.RefundAfter}
	}
	channel := &provider.HTTP{URL: p.cfg.Provider.URL, Timeout: p.cfg.Provider.Timeout}
	if p.cfg.Provider.KeyID == "" {
		return channel
	}
	channel.Keys, channel.Key, channel.Clock = p.payKeys.Keys, p.cfg.Provider.KeyID, p.clock
	return channel
}

func (p *parts) startOutbox(group *lifecycle.Group) error {
	cfg := outbox.Config{Owner: p.instance, Interval: p.cfg.Outbox.Interval, Batch: p.cfg.Outbox.Batch}
	deps := outbox.Deps{Clock: p.clock, Logger: p.log, Registry: p.registry}
	log, err := outbox.NewEventLog(p.cell, p.cfg.Kafka.Brokers, p.kafka...)
	if err != nil {
		return err
	}
	closeLast(group, "events", log.Close)
	lag, err := outbox.NewLagMeter(p.shard, deps)
	if err != nil {
		return err
	}
	group.Go("outbox-mirror", outbox.NewMirrorPublisher(cfg, p.shard, p.mirror, deps).Run)
	group.Go("outbox-events", outbox.NewEventPublisher(cfg, p.shard, log, deps).Run)
	group.Go("outbox-lag", lag.Run)
	pruner, err := outbox.NewPruner(outbox.PruneConfig{Keep: p.cfg.Outbox.Keep, Interval: p.cfg.Outbox.Prune}, p.shard, deps)
	if err != nil {
		return err
	}
	group.Go("outbox-prune", pruner.Run)
	return p.startRetention(group)
}

// startRetention archives and prunes what settled campaigns left.
func (p *parts) startRetention(group *lifecycle.Group) error {
	loop, err := retention.New(retention.Config{
		ArchiveAfter: p.cfg.Retention.ArchiveAfter, Replay: p.cfg.Retention.Replay, Interval: p.cfg.Retention.Interval, Page: p.cfg.Retention.Page,
	}, retention.Deps{Store: p.shard, Mirrors: p.mirror, Scopes: p.scopes, Clock: p.clock, Log: p.log, Registry: p.registry})
	if err != nil {
		return err
	}
	group.Go("retention", loop.Run)
	return nil
}

// compare makes what compares and repairs the ledgers; every process repairs what it is asked to. Pages
// may come from a standby.
func (p *parts) compare(group *lifecycle.Group) error {
	from := shard.LedgersConfig{Timeout: p.cfg.Shard.StatementTimeout, Encrypted: !p.cfg.Dev}
	if file := p.cfg.Reconcile.ReaderDSNFile; file != "" {
		var err error
		if from.DSN, err = secretFile(file); err != nil {
			return fmt.Errorf("reconcile.reader_dsn_file: %w", err)
		}
	}
	pages, err := p.shard.Ledgers(context.Background(), from) // lives as long as the process
	if err != nil {
		return err
	}
	closeLast(group, "ledgers", pages.Close)
	p.ledgers, err = reconcile.New(p.reconcileConfig(), p.shard, pages, p.mirror, p.producer, p.mirrors.ledgers, reconcile.Deps{Clock: p.clock, Logger: p.log, Registry: p.registry})
	return err
}

func (p *parts) reconcileConfig() reconcile.Config {
	c := p.cfg.Reconcile
	return reconcile.Config{
		Cell: p.cell, Owner: p.instance, Interval: c.Interval, Page: c.Page, Rate: c.Rate, InFlight: c.InFlight, Settle: c.Settle, Overdue: c.Overdue, Confirm: c.Confirm,
		RepairTries: c.RepairTries, RepairFor: c.RepairFor, ProposeOnly: !c.AutoRepair,
	}
}

// scopes are the mirrors that a campaign has, or had before it settled.
func (p *parts) scopes(id ids.CampaignID) []admission.Scope {
	c, known := p.rules.Current().Campaign(id)
	if !known || c.Direct {
		return nil
	}
	return scopesOf(c)
}

// payments serves what customers and the payment channel say about orders.
func (p *parts) payments(group *lifecycle.Group) (*payment.Service, error) {
	service, err := payment.New(p.shard, payment.Config{AttemptGrace: p.cfg.Payment.AttemptGrace}, p.log, p.registry)
	if err != nil {
		return nil, err
	}
	group.Go("payments", service.Run)
	return service, nil
}

// decider tells the scanner what the shard decided.
type decider struct{ shard *shard.Store }

// Decided implements relay.Shard.
func (d decider) Decided(ctx context.Context, g admission.Granted) (relay.Decided, error) {
	found, err := d.shard.EffectsOf(ctx, g.Reservation)
	if err != nil {
		return relay.Decided{}, err
	}
	out := relay.Decided{Known: len(found.Payloads) > 0, Pending: found.Pending, Build: found.Build}
	for _, payload := range found.Payloads {
		effect, err := events.DecodeEffect(payload)
		if err != nil {
			return relay.Decided{}, err
		}
		out.Effects = append(out.Effects, effect)
	}
	return out, nil
}

// gates tells operators why a gate stands as it does; without a driver it judges none.
type gates struct {
	driver *keeper.Driver
	rules  ruleBook
}

// Inputs implements api.Gates.
func (g gates) Inputs(campaign ids.CampaignID, sku ids.SKUID) (cause string, rate float64, ok bool) {
	if g.driver == nil {
		return "", 0, false
	}
	c, ok := g.rules.Current().Campaign(campaign)
	if !ok {
		return "", 0, false
	}
	view, ok := g.driver.View(scopeOf(c, sku), sku)
	return view.Gate.Cause, view.Rate, ok
}
