package convert

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/ids"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

func lottery(l *core.LotteryRules) *pb.LotteryRules {
	if l == nil {
		return nil
	}
	return &pb.LotteryRules{EntryOpenAt: Time(l.EntryOpenAt), EntryCloseAt: Time(l.EntryCloseAt), Tiers: maps.Clone(l.Tiers)}
}

func fromLottery(p *pb.LotteryRules) *core.LotteryRules {
	if p == nil {
		return nil
	}
	return &core.LotteryRules{EntryOpenAt: FromTime(p.GetEntryOpenAt()), EntryCloseAt: FromTime(p.GetEntryCloseAt()), Tiers: maps.Clone(p.GetTiers())}
}

// Commitment is what is published of a campaign's seed, hex; empty where it has none.
func Commitment(c core.Campaign) string {
	if len(c.LotterySeed) == 0 {
		return ""
	}
	sum := sha256.Sum256(c.LotterySeed)
	return hex.EncodeToString(sum[:])
}

// Lottery gives the public side of a campaign's lottery: the seed only once a SKU is drawn. Nil before
// the publish and with mode DIRECT.
func Lottery(c core.Campaign) *pb.Lottery {
	if len(c.LotterySeed) == 0 {
		return nil
	}
	out := &pb.Lottery{Commitment: Commitment(c), Draws: Draws(c.Draws)}
	if len(c.Draws) > 0 {
		out.Seed = hex.EncodeToString(c.LotterySeed)
	}
	return out
}

// Draws gives the outcomes of draws for the wire.
func Draws(draws []core.LotteryDraw) []*pb.LotteryDraw {
	return mapped(draws, func(d core.LotteryDraw) *pb.LotteryDraw {
		return &pb.LotteryDraw{
			SkuId: string(d.SKU), Entrants: d.Entrants, EntrantsSha256: d.EntrantsSHA256, Beacon: d.Beacon, Units: d.Units, Winners: d.Winners,
			Ungranted: d.Ungranted, Evidence: d.Evidence, EvidenceSha256: d.EvidenceSHA256, EvidenceSize: d.EvidenceSize, DrawnAt: Time(d.DrawnAt), LostCells: texts[ids.CellID, string](d.LostCells),
		}
	})
}

// FromDraws reads them back.
func FromDraws(draws []*pb.LotteryDraw) []core.LotteryDraw {
	return mapped(draws, func(d *pb.LotteryDraw) core.LotteryDraw {
		return core.LotteryDraw{
			SKU: ids.SKUID(d.GetSkuId()), Entrants: d.GetEntrants(), EntrantsSHA256: d.GetEntrantsSha256(), Beacon: d.GetBeacon(), Units: d.GetUnits(), Winners: d.GetWinners(),
			Ungranted: d.GetUngranted(), Evidence: d.GetEvidence(), EvidenceSHA256: d.GetEvidenceSha256(), EvidenceSize: d.GetEvidenceSize(), DrawnAt: FromTime(d.GetDrawnAt()), LostCells: texts[string, ids.CellID](d.GetLostCells()),
		}
	})
}
