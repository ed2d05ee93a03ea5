package shard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cellquota/cellquota/internal/ids"
)

// baseline is a mirror's leave to be sold by the shard alone, locked.
type baseline struct {
	build ids.Build
	used  time.Time // until when its rate is used up
	fresh bool      // used was moved by this run
}

// OpenBaseline gives the shard alone the right to sell what the mirror of the scope sold, after owner's
// barrier of build was consumed in every partition: no admission of an older build can become an order
// any more. It ends when the next build is minted. ErrConflict: a newer build was minted, or this one is
// not raised.
func (s *Store) OpenBaseline(ctx context.Context, campaign ids.CampaignID, scopeKey, owner string, build ids.Build) error {
	return s.inTx(ctx, "open_baseline", needActive, func(ctx context.Context, t tx) error {
		tag, err := t.Exec(ctx, sql("baseline_open"), campaign, scopeKey, owner, build.Fence, build.Count)
		if err == nil && tag.RowsAffected() == 0 {
			return fmt.Errorf("%w: build %s of %s/%s is not the newest, or not raised", ErrConflict, build, campaign, scopeKey)
		}
		return err
	})
}

// Baseline reads whether the shard alone may sell what the mirror of the scope sold, and under which
// build; the build is the raised one in either case.
func (s *Store) Baseline(ctx context.Context, campaign ids.CampaignID, scopeKey string) (raised ids.Build, open bool, err error) {
	err = s.pool.QueryRow(ctx, sql("baseline_of"), campaign, scopeKey).Scan(&raised.Fence, &raised.Count, &open)
	if errors.Is(err, pgx.ErrNoRows) {
		return ids.Build{}, false, nil
	}
	return raised, open, translate(err)
}

// lockBaselines locks the open ones among the asks' mirrors, after the stock rows. A build that is being
// minted waits, or has closed them.
func (r *directRun) lockBaselines(ctx context.Context) error {
	keys := r.baselineKeys()
	if len(keys) == 0 {
		return nil
	}
	campaigns, scopes := make([]string, len(keys)), make([]string, len(keys))
	for i, k := range keys {
		campaigns[i], scopes[i] = string(k.campaign), k.scope
	}
	rows, err := r.tx.Query(ctx, sql("baseline_lock"), campaigns, scopes)
	if err != nil {
		return err
	}
	r.open = map[scopeKey]*baseline{}
	var k scopeKey
	var b baseline
	var used *time.Time
	_, err = pgx.ForEachRow(rows, []any{&k.campaign, &k.scope, &b.build.Fence, &b.build.Count, &used}, func() error {
		r.open[k] = &baseline{build: b.build, used: orZero(used)}
		return nil
	})
	return err
}

// baselineKeys are the mirrors of the asks that have one, each once, in the order of their locks.
func (r *directRun) baselineKeys() []scopeKey {
	var out []scopeKey
	for i := range r.asks {
		m := &r.in.Messages[i]
		if rules := r.facts.rules[skuKey{m.Campaign, m.SKU}]; rules != nil && r.asks[i].Baseline > 0 {
			out = append(out, scopeKey{m.Campaign, rules.scopeKey(m.SKU)})
		}
	}
	slices.SortFunc(out, func(a, b scopeKey) int {
		return cmp.Or(cmp.Compare(a.campaign, b.campaign), cmp.Compare(a.scope, b.scope))
	})
	return slices.Compact(out)
}

// baselineBurst is how much of its rate a baseline may use at once.
const baselineBurst = time.Second

// meter lets through as many candidates as the baselines' rates allow, whichever process they came to:
// each moves the time until which the rate is used up by one interval, and at most a burst ahead.
func (r *directRun) meter(candidates []int) []int {
	var pass []int
	for _, i := range candidates {
		m := &r.in.Messages[i]
		b := r.open[r.scopeOf(m)]
		if r.asks[i].Baseline == 0 || b.take(r.now, r.asks[i].Baseline) {
			pass = append(pass, i)
			continue
		}
		r.results[i] = DirectResult{Outcome: DirectThrottled, Opens: b.used.Sub(r.now)}
	}
	return pass
}

// take uses one order's share of a rate per second.
func (b *baseline) take(now time.Time, rate float64) bool {
	interval := time.Duration(float64(time.Second) / rate)
	next := b.used
	if next.Before(now) {
		next = now
	}
	next = next.Add(interval)
	if next.Sub(now) > max(baselineBurst, interval) {
		return false
	}
	b.used, b.fresh = next, true
	return true
}

// queueRates records what the rates were used for.
func (r *directRun) queueRates(w *writes) {
	for _, k := range r.baselineKeys() {
		if b := r.open[k]; b != nil && b.fresh {
			w.queue("baselines", 1, "baseline_use", k.campaign, k.scope, b.used)
		}
	}
}
