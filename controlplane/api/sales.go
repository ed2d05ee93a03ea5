package api

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/intent"
	"github.com/cellquota/cellquota/controlplane/report/shards"
	"github.com/cellquota/cellquota/internal/ids"
)

// ShardSales adds up what a campaign's shards hold, for a refusal's figures.
type ShardSales struct{ Reader *shards.Reader }

// Bounds of one question: a refusal does not wait for a shard that is away.
const (
	salesTime   = 3 * time.Second
	salesAtOnce = 16
)

// Living implements intent.Sales.
func (s ShardSales) Living(ctx context.Context, campaign ids.CampaignID, cells []core.Cell) intent.Living {
	ctx, cancel := context.WithTimeout(ctx, salesTime)
	defer cancel()
	var mu sync.Mutex
	var out intent.Living
	var asks errgroup.Group
	asks.SetLimit(salesAtOnce)
	for _, c := range cells {
		asks.Go(func() error {
			stocks, err := s.stocks(ctx, campaign, c.Spec)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				out.Unread = append(out.Unread, string(c.Spec.ID))
			}
			for _, stock := range stocks {
				out.Reserved += stock.Reserved
				out.Paid += stock.Confirmed
			}
			return nil
		})
	}
	_ = asks.Wait() // none fails: a shard that is away is named
	slices.Sort(out.Unread)
	return out
}

func (s ShardSales) stocks(ctx context.Context, campaign ids.CampaignID, spec core.CellSpec) ([]shards.Stock, error) {
	snapshot, err := s.Reader.Snapshot(ctx, spec.Shard.ReaderDSNFile)
	if err != nil {
		return nil, err
	}
	defer snapshot.Close(ctx)
	return snapshot.Stocks(ctx, string(campaign))
}
