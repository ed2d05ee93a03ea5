package convert

import (
	"maps"
	"slices"

	"github.com/cellquota/cellquota/fencing"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// FromWitness reads what somebody saw of a shard; absent: nothing.
func FromWitness(m *pb.ShardWitness) fencing.Witness {
	w := fencing.Witness{
		Identity: m.GetIdentity(), Version: fencing.Version(max(0, m.GetFenceVersion())),
		Stocks: map[fencing.SKU]fencing.Mark{}, Routes: map[string]int64{}, Builds: map[fencing.Scope]fencing.BuildMark{},
		Positions: map[fencing.Partition]fencing.PositionMark{}, Settled: map[string]bool{},
	}
	for _, s := range m.GetStocks() {
		w.Stocks[fencing.SKU{Campaign: s.GetCampaignId(), SKU: s.GetSkuId()}] = fencing.Mark{
			AdjustmentVersion: s.GetAdjustmentVersion(), LastNumber: s.GetLastNumber(), StockVersion: s.GetStockVersion(),
		}
	}
	for _, r := range m.GetRoutes() {
		w.Routes[r.GetCampaignId()] = r.GetRouteVersion()
	}
	for _, b := range m.GetBuilds() {
		w.Builds[fencing.Scope{Campaign: b.GetCampaignId(), Key: b.GetScope()}] = fencing.BuildMark{Fence: b.GetFenceVersion(), Count: b.GetCount()}
	}
	for _, p := range m.GetPositions() {
		w.Positions[fencing.Partition{Topic: p.GetTopic(), Partition: p.GetPartition()}] = fencing.PositionMark{
			TopicID: p.GetTopicId(), Next: p.GetNextOffset(), Epoch: p.GetLeaderEpoch(),
		}
	}
	for _, c := range m.GetSettledCampaigns() {
		w.Settled[c] = true
	}
	return w
}

// Witness renders what was seen of a shard; its lists are in no order.
func Witness(w fencing.Witness) *pb.ShardWitness {
	m := &pb.ShardWitness{Identity: w.Identity, FenceVersion: w.Version.Int64(), SettledCampaigns: slices.Sorted(maps.Keys(w.Settled))}
	for sku, mark := range w.Stocks {
		m.Stocks = append(m.Stocks, &pb.StockMark{
			CampaignId: sku.Campaign, SkuId: sku.SKU, AdjustmentVersion: mark.AdjustmentVersion, LastNumber: mark.LastNumber, StockVersion: mark.StockVersion,
		})
	}
	for campaign, version := range w.Routes {
		m.Routes = append(m.Routes, &pb.RouteMark{CampaignId: campaign, RouteVersion: version})
	}
	for scope, b := range w.Builds {
		m.Builds = append(m.Builds, &pb.BuildMark{CampaignId: scope.Campaign, Scope: scope.Key, FenceVersion: b.Fence, Count: b.Count})
	}
	for at, p := range w.Positions {
		m.Positions = append(m.Positions, &pb.PositionMark{Topic: at.Topic, Partition: at.Partition, TopicId: p.TopicID, NextOffset: p.Next, LeaderEpoch: p.Epoch})
	}
	return m
}
