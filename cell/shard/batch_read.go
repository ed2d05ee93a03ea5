package shard

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cellquota/cellquota/cell/homes"
	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/internal/ids"
)

type skuKey struct {
	campaign ids.CampaignID
	sku      ids.SKUID
}

type scopeKey struct {
	campaign ids.CampaignID
	scope    string
}

// batchRules are a SKU's rules with what only the tables need.
type batchRules struct {
	reservation.Rules
	version    int64
	scope      string // SKU or CAMPAIGN
	unreadable bool
}

// batchFacts are what a batch read under its locks.
type batchFacts struct {
	messagesFrom int64
	state        FenceState
	direct       bool // no message of any log: there is no build that it could be ahead of
	available    map[skuKey]int32
	versions     map[skuKey]int64 // of the stock rows
	rules        map[skuKey]*batchRules
	owned        map[ids.CampaignID]homes.Table
	minted       map[scopeKey]ids.Build
	raised       map[scopeKey]ids.Build
	earlier      map[int][]reservation.Earlier
	archived     map[ids.CampaignID]bool
	replay       replay
	free         needs // TOKEN mode: free rows, counted up to what the batch wants
}

// of gathers the facts of message i. A message of a fence version or build that this shard never
// gave out means that the shard went back in time: nothing may be judged by it.
func (f *batchFacts) of(m *Message, i int, fenceVersion int64) (*reservation.Facts, error) {
	out := &reservation.Facts{MessagesFrom: f.messagesFrom, Earlier: f.earlier[i], Archived: f.archived[m.Campaign]}
	if !f.direct && f.replay.again(m.Offset) {
		out.MessagesFrom = f.replay.messagesFrom(m.Offset)
	}
	if m.Build.Fence > fenceVersion {
		return nil, fmt.Errorf("%w: message at offset %d is of fence version %d, the shard is at %d", ErrShardBehind, m.Offset, m.Build.Fence, fenceVersion)
	}
	out.Owned = f.owned[m.Campaign].Owns(m.Domain, m.User)
	rules := f.rules[skuKey{m.Campaign, m.SKU}]
	if rules == nil {
		return out, nil
	}
	out.Rules = &rules.Rules
	scope := scopeKey{m.Campaign, rules.scopeKey(m.SKU)}
	out.Raised = f.raised[scope]
	if !f.direct && m.Build.Compare(f.minted[scope]) > 0 {
		return nil, fmt.Errorf("%w: message at offset %d is of build %s, the shard minted %s", ErrShardBehind, m.Offset, m.Build, f.minted[scope])
	}
	return out, nil
}

// unreadable: nobody can say by which rules the message is to become an order.
func (f *batchFacts) unreadable(m *Message) bool {
	return f.rules[skuKey{m.Campaign, m.SKU}].unreadable
}

// scopeKey is the key of buyers and mirrors.
func (r *batchRules) scopeKey(sku ids.SKUID) string {
	if r.scope == "CAMPAIGN" {
		return WholeCampaign
	}
	return string(sku)
}

// lockAndRead travels once: each statement has its own snapshot, so what follows the locks sees what
// committed while they were awaited.
func (r *batchRun) lockAndRead(ctx context.Context) error {
	f := &r.facts
	if _, err := r.store.hasCarried(ctx, r.tx); err != nil {
		return err
	}
	if _, err := r.store.hasReviews(ctx, r.tx); err != nil {
		return err
	}
	archives, err := schemaHas(ctx, r.tx, &r.store.retentionKnown, "retention_known")
	if err != nil {
		return err
	}
	campaigns, keyCampaigns, keySKUs, units := r.keys()
	b := &pgx.Batch{}
	if !r.direct {
		b.Queue(sql("position_lock"), r.in.From.Topic, r.in.From.Partition)
	}
	b.Queue(sql("batch_now"))
	b.Queue(sql("batch_lock_stock"), keyCampaigns, keySKUs)
	b.Queue(sql("batch_now"))
	b.Queue(sql("batch_fence"))
	b.Queue(sql("batch_rules"), keyCampaigns, keySKUs)
	b.Queue(sql("batch_buckets"), campaigns)
	b.Queue(sql("batch_raised"), campaigns)
	b.Queue(sql(r.store.since4("batch_earlier", "batch_earlier_step3")), r.earlierArgs()...)
	b.Queue(sql("tokens_free"), keyCampaigns, keySKUs, units)
	if archives = archives && !r.direct; archives {
		b.Queue(sql("batch_archived"), campaigns)
	}
	err = r.tx.send(ctx, b, func(res pgx.BatchResults) error {
		var before, after time.Time
		if err := r.readPosition(res); err != nil {
			return err
		}
		err := errors.Join(res.QueryRow().Scan(&before), f.readStock(res), res.QueryRow().Scan(&after),
			res.QueryRow().Scan(&f.messagesFrom, &f.state), f.readRules(res), f.readBuckets(res), f.readRaised(res), f.readEarlier(res), f.readFree(res))
		if archives {
			err = errors.Join(err, f.readArchived(res))
		}
		r.now = after
		r.store.metrics.lockWait.WithLabelValues(r.verb()).Observe(after.Sub(before).Seconds())
		r.store.pressure.waited(r.store.clock.Now(), after.Sub(before))
		return err
	})
	if err != nil {
		return err
	}
	maps.Copy(r.tx.marks, f.versions)
	if err := r.readReplay(ctx); err != nil {
		return err
	}
	return r.store.completeRules(ctx, r.tx, f.rules)
}

// readArchived comes after the earlier outcomes: a row that had been pruned by then is of a campaign that
// was archived before.
func (f *batchFacts) readArchived(res pgx.BatchResults) error {
	var campaign ids.CampaignID
	return eachRow(res, []any{&campaign}, func() error {
		if f.archived == nil {
			f.archived = map[ids.CampaignID]bool{}
		}
		f.archived[campaign] = true
		return nil
	})
}

// readPosition compares the locked position with the expected one, where there is a log.
func (r *batchRun) readPosition(res pgx.BatchResults) error {
	if r.direct {
		return nil
	}
	stored, found, err := readPosition(res.QueryRow(), r.in.From.Topic, r.in.From.Partition)
	if err != nil {
		return err
	}
	return r.in.From.compare(stored, found)
}

// verb names the transaction in metrics and the ledger's source.
func (r *batchRun) verb() string {
	if r.direct {
		return "apply_direct"
	}
	return "apply_orders"
}

// keys are the campaigns, and the (campaign, SKU) pairs with the units wanted, of the batch, each once.
func (r *batchRun) keys() (campaigns, keyCampaigns, keySKUs []string, units []int32) {
	seen, wanted := map[ids.CampaignID]bool{}, needs{}
	campaigns = []string{}
	for i := range r.in.Messages {
		m := &r.in.Messages[i]
		if !seen[m.Campaign] {
			seen[m.Campaign] = true
			campaigns = append(campaigns, string(m.Campaign))
		}
		wanted[skuKey{m.Campaign, m.SKU}] += max(m.Quantity, 0)
	}
	keyCampaigns, keySKUs, units = wanted.args()
	return campaigns, keyCampaigns, keySKUs, units
}

func (r *batchRun) earlierArgs() []any {
	n := len(r.in.Messages)
	campaign, sku, user, request := make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	for i := range r.in.Messages {
		m := &r.in.Messages[i]
		campaign[i], sku[i], user[i], request[i] = string(m.Campaign), string(m.SKU), string(m.User), string(m.Request)
	}
	return []any{campaign, sku, user, request}
}

// eachRow scans the next result of a pipeline row by row.
func eachRow(res pgx.BatchResults, scans []any, fn func() error) error {
	rows, err := res.Query()
	if err != nil {
		return err
	}
	_, err = pgx.ForEachRow(rows, scans, fn)
	return err
}

func (f *batchFacts) readStock(res pgx.BatchResults) error {
	f.available, f.versions = map[skuKey]int32{}, map[skuKey]int64{}
	var k skuKey
	var available int32
	var version int64
	return eachRow(res, []any{&k.campaign, &k.sku, &available, &version}, func() error {
		f.available[k], f.versions[k] = available, version
		return nil
	})
}

func (f *batchFacts) readRules(res pgx.BatchResults) error {
	f.rules = map[skuKey]*batchRules{}
	var k skuKey
	var r batchRules
	var ttl float64
	var amount, currency string
	return eachRow(res, []any{&k.campaign, &r.version, &k.sku, &r.OpenAt, &r.CloseAt, &r.scope, &ttl, &amount, &currency}, func() error {
		price, err := reservation.ParseMoney(amount, currency)
		if err != nil {
			return err
		}
		one := r
		one.Price, one.TTL = price, time.Duration(ttl*float64(time.Second))
		f.rules[k] = &one
		return nil
	})
}

func (f *batchFacts) readBuckets(res pgx.BatchResults) error {
	f.owned = map[ids.CampaignID]homes.Table{}
	ranges := map[ids.CampaignID][]homes.Range{}
	var campaign ids.CampaignID
	var domain string
	var from, to int32
	err := eachRow(res, []any{&campaign, &domain, &from, &to}, func() error {
		ranges[campaign] = append(ranges[campaign], homes.Range{Domain: domain, From: uint16(from), To: uint16(to), Open: true})
		return nil
	})
	for c, list := range ranges {
		f.owned[c] = homes.New(list)
	}
	return err
}

func (f *batchFacts) readRaised(res pgx.BatchResults) error {
	f.minted, f.raised = map[scopeKey]ids.Build{}, map[scopeKey]ids.Build{}
	var k scopeKey
	var minted, raised ids.Build
	return eachRow(res, []any{&k.campaign, &k.scope, &minted.Fence, &minted.Count, &raised.Fence, &raised.Count}, func() error {
		f.minted[k], f.raised[k] = minted, raised
		return nil
	})
}

func (f *batchFacts) readFree(res pgx.BatchResults) error {
	var err error
	f.free, err = scanFree(res)
	return err
}

func (f *batchFacts) readEarlier(res pgx.BatchResults) error {
	f.earlier = map[int][]reservation.Earlier{}
	var i int32
	var e reservation.Earlier
	return eachRow(res, []any{&i, &e.Reservation, &e.Rejected, &e.Reason, &e.Fingerprint}, func() error {
		f.earlier[int(i)] = append(f.earlier[int(i)], e)
		return nil
	})
}

// completeRules adds what only the campaign's full spec says.
func (s *Store) completeRules(ctx context.Context, t tx, rules map[skuKey]*batchRules) error {
	for k, r := range rules {
		kept, err := s.specFor(ctx, t, k.campaign, r.version)
		if err != nil {
			return err
		}
		r.MaxQuantity, r.TTLByRisk, r.Cancelled = kept.maxQuantity, kept.ttlByRisk, kept.cancelled
		r.Holds, r.unreadable = kept.holds, kept.unreadable
	}
	return nil
}
