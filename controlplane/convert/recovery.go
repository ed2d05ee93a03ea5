package convert

import (
	"github.com/cellquota/cellquota/controlplane/core"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Limits gives confirmed limits for the wire and for etcd.
func Limits(limits []core.ConfirmedLimit) []*pb.ConfirmedLimit {
	var out []*pb.ConfirmedLimit
	for _, l := range limits {
		out = append(out, &pb.ConfirmedLimit{CampaignId: string(l.Key.Campaign), SkuId: string(l.Key.SKU), SaleLimit: l.SaleLimit.Int32()})
	}
	return out
}

// FromLimits reads confirmed limits.
func FromLimits(limits []*pb.ConfirmedLimit) ([]core.ConfirmedLimit, error) {
	var r reader
	var out []core.ConfirmedLimit
	for _, l := range limits {
		out = append(out, core.ConfirmedLimit{Key: key(l.GetCampaignId(), l.GetSkuId()), SaleLimit: r.units("sale_limit", l.GetSaleLimit())})
	}
	return out, r.err
}
