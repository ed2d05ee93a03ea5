package verify

import (
	"context"
	"fmt"
	"sync"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/report/shards"
	"github.com/cellquota/cellquota/internal/ids"
)

// Plane reads the control plane's side, linearizably and at one revision.
type Plane interface {
	// Cut reads books, cells, campaigns and physical stock; campaign "" means all.
	Cut(ctx context.Context, campaign ids.CampaignID) (Cut, error)
}

// Cut is the control plane at one etcd revision.
type Cut struct {
	Revision  int64
	Books     []core.Book
	Cells     []core.Cell
	Campaigns []core.Campaign
	Physical  []core.PhysicalStock
	// Open names the books with an adjustment whose shard has not answered.
	Open map[core.BookKey]bool
	// Deleted are the campaigns with a tombstone: shards keep their rows, and they
	// have no book any more.
	Deleted map[ids.CampaignID]bool
	// Unreadable are the records that cannot be decoded or break their own law, by
	// "KIND: KEY"; a book among them is a breach of I1.
	Unreadable map[string]error
}

// MirrorFacts is what a cell's process says about one mirror.
type MirrorFacts struct {
	Present bool
	// FenceVersion is in its meta: a mirror of an older one admits nothing and says
	// nothing about the shard.
	FenceVersion int64
	// Build is "FENCE.COUNT", as inboxes have it.
	Build       string
	Stock       int64
	Outstanding int64
	Stream      int64
}

// Mirrors asks a live process of a cell about a mirror. An error means that none answered.
type Mirrors interface {
	Mirror(ctx context.Context, cell ids.CellID, key core.BookKey) (MirrorFacts, error)
}

// shardCut is one shard in one snapshot, or why not.
type shardCut struct {
	cell    core.Cell
	err     error
	fence   shards.Fence
	stocks  map[core.BookKey]shards.Stock
	faults  []shards.Fault
	effects int64
	parked  int64 // messages of which nobody knows whose they are
	// held are the units of parked admissions, by SKU and build.
	held map[parkedBy]int64
}

type parkedBy struct {
	key   core.BookKey
	build string
}

// readShards reads every provisioned cell's shard at the same time. thorough adds the checks inside
// the shard, which cost as much as its ledger is long.
func readShards(ctx context.Context, reader *shards.Reader, cells []core.Cell, campaign ids.CampaignID, tokens []string, thorough bool) []shardCut {
	out := make([]shardCut, len(cells))
	var wg sync.WaitGroup
	for i, cell := range cells {
		wg.Go(func() { out[i] = readShard(ctx, reader, cell, string(campaign), tokens, thorough) })
	}
	wg.Wait()
	return out
}

func readShard(ctx context.Context, reader *shards.Reader, cell core.Cell, campaign string, tokens []string, thorough bool) shardCut {
	c := shardCut{cell: cell, stocks: map[core.BookKey]shards.Stock{}}
	snapshot, err := reader.Snapshot(ctx, cell.Spec.Shard.ReaderDSNFile)
	if err != nil {
		c.err = err
		return c
	}
	defer snapshot.Close(ctx)
	stocks, err := snapshot.Stocks(ctx, campaign)
	if err == nil {
		c.fence, err = snapshot.Fence(ctx)
	}
	if err == nil {
		c.effects, c.parked, err = snapshot.UnderWay(ctx, campaign)
	}
	if err == nil && c.parked > 0 {
		err = c.readParked(ctx, snapshot, campaign)
	}
	if err == nil && thorough {
		c.faults, err = snapshot.Faults(ctx, campaign, maxListed, tokens)
	}
	if err == nil && c.fence.Cell != string(cell.Spec.ID) {
		err = fmt.Errorf("the shard belongs to cell %q", c.fence.Cell)
	}
	for _, s := range stocks {
		c.stocks[core.BookKey{Campaign: ids.CampaignID(s.Campaign), SKU: ids.SKUID(s.SKU)}] = s
	}
	c.err = err
	return c
}

// readParked tells the parked messages apart: those whose units are known are in held,
// and parked counts the others.
func (c *shardCut) readParked(ctx context.Context, snapshot *shards.Snapshot, campaign string) error {
	parked, err := snapshot.Parked(ctx, campaign)
	c.held, c.parked = map[parkedBy]int64{}, 0
	for _, p := range parked {
		if p.Campaign == "" {
			c.parked = p.Units
			continue
		}
		c.held[parkedBy{core.BookKey{Campaign: ids.CampaignID(p.Campaign), SKU: ids.SKUID(p.SKU)}, p.Build}] = p.Units
	}
	return err
}
