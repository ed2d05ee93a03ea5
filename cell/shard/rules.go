package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"

	"github.com/cellquota/cellquota/cell/homes"
	"github.com/cellquota/cellquota/internal/ids"
	cellquotav1 "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// RulesOutcome is what became of a version of a campaign's rules.
type RulesOutcome string

// The outcomes of InstallRules.
const (
	RulesInstalled RulesOutcome = "INSTALLED"
	RulesStale     RulesOutcome = "STALE" // the same or a newer version is there; nothing changed
)

// CampaignRow is one campaign as the shard has it.
type CampaignRow struct {
	ID      ids.CampaignID
	Version int64
	State   string
	Rules   *cellquotav1.CampaignRules // nil: what the shard has cannot be read
}

// InstallRules records a version of a campaign's rules under the sender's term: the campaign, its
// SKUs with their stock rows, and, the first time, the buckets this cell owns. Rules that this cell
// cannot carry out are ErrUnsupported, rules that make no sense ErrInvalid; both name the field.
func (s *Store) InstallRules(ctx context.Context, termCount int64, termID string, rules *cellquotav1.CampaignRules) (RulesOutcome, error) {
	in, err := renderRules(rules)
	if err != nil {
		return "", err
	}
	if slices.Contains(in.modes, modeToken) {
		if err := s.mayKeepTokens(ctx); err != nil {
			return "", err
		}
	}
	outcome := RulesStale
	err = s.inTx(ctx, "install_rules", needSettle, func(ctx context.Context, t tx) error {
		outcome = RulesStale
		if _, err := t.Exec(ctx, sql("term_raise"), termCount, termID); err != nil {
			return err
		}
		installed, err := in.install(ctx, t)
		if installed {
			outcome = RulesInstalled
		}
		return err
	})
	if err != nil {
		return "", err
	}
	return outcome, nil
}

// renderedRules are rules as the tables take them.
type renderedRules struct {
	campaign                         string
	version                          int64
	state, scope                     string
	spec                             *cellquotav1.CampaignSpec
	raw                              []byte
	skus, amounts, currencies, modes []string
	paused, final                    []bool
	domains                          []string
	from, to                         []int32
}

func renderRules(rules *cellquotav1.CampaignRules) (*renderedRules, error) {
	if err := checkRules(rules); err != nil {
		return nil, err
	}
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(rules)
	if err != nil {
		return nil, fmt.Errorf("%w: rules: %w", ErrInvalid, err)
	}
	spec := rules.GetSpec()
	in := &renderedRules{
		campaign: spec.GetCampaignId(), version: rules.GetVersion(), state: stateNames[rules.GetState()],
		scope: scopeNames[spec.GetPurchaseScope()], spec: spec, raw: raw,
	}
	paused, final := setOf(rules.GetPausedSkus()), setOf(rules.GetFinalSkus())
	for _, sku := range spec.GetSkus() {
		in.skus = append(in.skus, sku.GetSkuId())
		in.amounts = append(in.amounts, sku.GetPrice().GetAmount())
		in.currencies = append(in.currencies, sku.GetPrice().GetCurrency())
		in.modes = append(in.modes, modeNames[sku.GetInventoryMode()])
		in.paused = append(in.paused, paused[sku.GetSkuId()])
		in.final = append(in.final, final[sku.GetSkuId()])
	}
	for _, d := range rules.GetBuckets() {
		for _, r := range d.GetRanges() {
			in.domains = append(in.domains, d.GetDomain())
			in.from = append(in.from, r.GetBucketFrom())
			in.to = append(in.to, r.GetBucketTo())
		}
	}
	return in, nil
}

func setOf(list []string) map[string]bool {
	set := make(map[string]bool, len(list))
	for _, v := range list {
		set[v] = true
	}
	return set
}

// install writes the rules; false: the stored version is not below this one. The upsert itself
// compares, so that of two processes that were told two versions the newer wins in either order.
func (in *renderedRules) install(ctx context.Context, t tx) (bool, error) {
	if err := in.scopeStays(ctx, t); err != nil {
		return false, err
	}
	tag, err := t.Exec(ctx, sql("rules_upsert"), in.campaign, in.version, in.state, in.spec.GetOpenAt().AsTime(),
		in.spec.GetCloseAt().AsTime(), in.scope, in.spec.GetReservationTtl().AsDuration().Seconds(), in.raw)
	if err != nil || tag.RowsAffected() == 0 {
		return false, err
	}
	b := &pgx.Batch{}
	b.Queue(sql("rules_skus"), in.campaign, in.skus, in.amounts, in.currencies, in.modes, in.paused, in.final)
	b.Queue(sql("rules_stock"), in.campaign, in.skus, t.writer.FenceVersion)
	b.Queue(sql("rules_buckets"), in.campaign, in.domains, in.from, in.to)
	return true, t.SendBatch(ctx, b).Close()
}

// scopeStays refuses a change of the purchase scope: buyers are keyed by it for ever (I4).
func (in *renderedRules) scopeStays(ctx context.Context, t tx) error {
	var version int64
	var state, scope string
	err := t.QueryRow(ctx, sql("rules_lock"), in.campaign).Scan(&version, &state, &scope)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err == nil && scope != in.scope && version < in.version {
		return fmt.Errorf("%w: spec.purchase_scope must stay %s", ErrInvalid, scope)
	}
	return err
}

// Campaigns reads every campaign in one snapshot.
func (s *Store) Campaigns(ctx context.Context) ([]CampaignRow, error) {
	rows, err := s.pool.Query(ctx, sql("rules_all"))
	if err != nil {
		return nil, translate(err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (CampaignRow, error) {
		var c CampaignRow
		var raw []byte
		if err := row.Scan(&c.ID, &c.Version, &c.State, &raw); err != nil {
			return c, err
		}
		c.Rules = readRules(c.ID, raw) // the reader names one that is nil; the others must not be hidden by it (K43)
		return c, nil
	})
	if err != nil {
		return nil, translate(err)
	}
	unreadable := 0
	for i := range all {
		if all[i].Rules == nil {
			unreadable++
		}
	}
	s.metrics.unreadable.Set(float64(unreadable))
	return all, nil
}

// RulesVersion is the version of a campaign's rules that the shard has; 0: none.
func (s *Store) RulesVersion(ctx context.Context, campaign ids.CampaignID) (int64, error) {
	var version int64
	err := s.pool.QueryRow(ctx, sql("rules_version"), campaign).Scan(&version)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil
	}
	return version, translate(err)
}

// CampaignsMark changes whenever Campaigns would answer something else: poll it, and read Campaigns
// when it did.
func (s *Store) CampaignsMark(ctx context.Context) (string, error) {
	var mark string
	err := s.pool.QueryRow(ctx, sql("rules_versions")).Scan(&mark)
	return mark, translate(err)
}

// Buckets is the table of the buckets this shard owns in a campaign.
func (s *Store) Buckets(ctx context.Context, campaign ids.CampaignID) (homes.Table, error) {
	return s.buckets(ctx, "buckets_of", campaign)
}

// ShownBuckets is the table that a mirror admits by: Buckets without those that a handover brought and
// whose buyers' marks have not left the outbox yet. Only a mirror's: the order transaction asks the rows.
func (s *Store) ShownBuckets(ctx context.Context, campaign ids.CampaignID) (homes.Table, error) {
	return s.buckets(ctx, "buckets_shown", campaign)
}

func (s *Store) buckets(ctx context.Context, query string, campaign ids.CampaignID) (homes.Table, error) {
	rows, err := s.pool.Query(ctx, sql(query), campaign)
	if err != nil {
		return homes.Table{}, translate(err)
	}
	var domain, state string
	var from, to int32
	var ranges []homes.Range
	if _, err := pgx.ForEachRow(rows, []any{&domain, &from, &to, &state}, func() error {
		ranges = append(ranges, homes.Range{Domain: domain, From: uint16(from), To: uint16(to), Open: state == "OPEN"})
		return nil
	}); err != nil {
		return homes.Table{}, translate(err)
	}
	return homes.New(ranges), nil
}
