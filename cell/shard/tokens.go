package shard

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/telemetry"
	cellquotav1 "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// tokensStep is the schema's step whose ledger moves the rows of SKUs in TOKEN mode.
const tokensStep = 3

const modeToken = "TOKEN"

// modeNames are the stored words of a SKU's inventory mode.
var modeNames = map[cellquotav1.InventoryMode]string{
	cellquotav1.InventoryMode_INVENTORY_MODE_UNSPECIFIED: "COUNTER",
	cellquotav1.InventoryMode_INVENTORY_MODE_COUNTER:     "COUNTER",
	cellquotav1.InventoryMode_INVENTORY_MODE_TOKEN:       modeToken,
}

// mayKeepTokens is ErrUnsupported while the schema is at a step that leaves token rows alone. It is
// asked anew until the schema has them: a migration comes while we run.
func (s *Store) mayKeepTokens(ctx context.Context) error {
	if known, err := s.atTokensStep(ctx); err != nil || known {
		return err
	}
	return fmt.Errorf("%w: inventory_mode TOKEN needs step %d of the shard's schema: run cellquotad migrate up", ErrUnsupported, tokensStep)
}

// atTokensStep tells whether the schema is at step 3 by now.
func (s *Store) atTokensStep(ctx context.Context) (bool, error) {
	known, err := schemaHas(ctx, s.pool, &s.tokensKnown, "tokens_known")
	return known, translate(err)
}

// needs are the units that a transaction wants of each SKU at most.
type needs map[skuKey]int32

func (n needs) args() (campaigns, skus []string, units []int32) {
	campaigns, skus, units = []string{}, []string{}, []int32{}
	for k, u := range n {
		campaigns, skus, units = append(campaigns, string(k.campaign)), append(skus, string(k.sku)), append(units, u)
	}
	return campaigns, skus, units
}

// scanFree takes the free rows of SKUs in TOKEN mode, counted up to the need; others are not in it.
func scanFree(res pgx.BatchResults) (needs, error) {
	free := needs{}
	var k skuKey
	var n int32
	err := eachRow(res, []any{&k.campaign, &k.sku, &n}, func() error {
		free[k] = n
		return nil
	})
	return free, err
}

// lacksRows tells how many of units, which the counter has, have no free row; 0 for a SKU of counters.
// The stock row is locked.
func (t tx) lacksRows(ctx context.Context, campaign ids.CampaignID, sku ids.SKUID, units int32) (int32, error) {
	k := skuKey{campaign, sku}
	campaigns, skus, need := needs{k: units}.args()
	b := &pgx.Batch{}
	b.Queue(sql("tokens_free"), campaigns, skus, need)
	var free needs
	err := t.send(ctx, b, func(res pgx.BatchResults) error {
		var err error
		free, err = scanFree(res)
		return err
	})
	if n, tokens := free[k]; tokens {
		return units - n, err
	}
	return 0, err
}

// noteMissing records units that are available and have no free row. They are sold to nobody.
func (t tx) noteMissing(ctx context.Context, missing needs) error {
	if len(missing) == 0 {
		return nil
	}
	campaigns, skus, units := missing.args()
	_, err := t.Exec(ctx, sql("tokens_missing"), campaigns, skus, units) // a finding that is there already counts as none
	return err
}

// alarm tells of a committed shortage: an operator must look at the finding.
func (s *Store) alarm(missing needs) {
	for k, n := range missing {
		s.metrics.stockFailures.WithLabelValues("token_missing").Add(float64(n))
		s.log.Error("units are available and have no free token row", telemetry.Event, "tokens_missing",
			telemetry.CampaignID, k.campaign, telemetry.SKUID, k.sku, "units", n)
	}
}
