package convert

import (
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/ids"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// CellSpec gives a cell's spec for the wire.
func CellSpec(s core.CellSpec) *pb.CellSpec {
	return &pb.CellSpec{
		CellId: string(s.ID), Region: s.Region, InstanceGroup: s.InstanceGroup,
		Weight: int32(s.Weight),
		Redis: &pb.RedisSpec{
			Mode: s.Redis.Mode, Addrs: s.Redis.Addrs, PasswordFile: s.Redis.PasswordFile, MasterName: s.Redis.MasterName, Tls: storeTLS(s.Redis.TLS),
		},
		Kafka: &pb.KafkaSpec{
			Brokers: s.Kafka.Brokers, Topic: s.Kafka.Topic, Partitions: s.Kafka.Partitions, Replication: s.Kafka.Replication,
			Tls: storeTLS(s.Kafka.TLS), Sasl: kafkaSASL(s.Kafka.SASL),
		},
		Shard: &pb.ShardSpec{
			DsnFile: s.Shard.DSNFile, ReaderDsnFile: s.Shard.ReaderDSNFile, FencerDsnFile: s.Shard.FencerDSNFile, Replicated: s.Shard.Replicated,
		},
	}
}

// FromCellSpec reads a cell's spec. The caller checks it (CellSpec.Check).
func FromCellSpec(p *pb.CellSpec) core.CellSpec {
	return core.CellSpec{
		ID: ids.CellID(p.GetCellId()), Region: p.GetRegion(), InstanceGroup: p.GetInstanceGroup(),
		Weight: uint32(p.GetWeight()),
		Redis: core.RedisSpec{
			Mode: p.GetRedis().GetMode(), Addrs: p.GetRedis().GetAddrs(), PasswordFile: p.GetRedis().GetPasswordFile(), MasterName: p.GetRedis().GetMasterName(),
			TLS: fromStoreTLS(p.GetRedis().GetTls()),
		},
		Kafka: core.KafkaSpec{
			Brokers: p.GetKafka().GetBrokers(), Topic: p.GetKafka().GetTopic(),
			Partitions: p.GetKafka().GetPartitions(), Replication: p.GetKafka().GetReplication(),
			TLS: fromStoreTLS(p.GetKafka().GetTls()), SASL: fromKafkaSASL(p.GetKafka().GetSasl()),
		},
		Shard: core.ShardSpec{
			DSNFile: p.GetShard().GetDsnFile(), ReaderDSNFile: p.GetShard().GetReaderDsnFile(), FencerDSNFile: p.GetShard().GetFencerDsnFile(),
			Replicated: p.GetShard().GetReplicated(),
		},
	}
}

// storeTLS gives no message for plain text.
func storeTLS(t core.StoreTLS) *pb.StoreTls {
	if t == (core.StoreTLS{}) {
		return nil
	}
	return &pb.StoreTls{CaFile: t.CAFile, CertFile: t.CertFile, KeyFile: t.KeyFile, ServerName: t.ServerName}
}

func fromStoreTLS(p *pb.StoreTls) core.StoreTLS {
	return core.StoreTLS{CAFile: p.GetCaFile(), CertFile: p.GetCertFile(), KeyFile: p.GetKeyFile(), ServerName: p.GetServerName()}
}

// kafkaSASL gives no message where nobody logs in.
func kafkaSASL(l core.KafkaSASL) *pb.KafkaSasl {
	if l == (core.KafkaSASL{}) {
		return nil
	}
	return &pb.KafkaSasl{Mechanism: l.Mechanism, User: l.User, PasswordFile: l.PasswordFile}
}

func fromKafkaSASL(p *pb.KafkaSasl) core.KafkaSASL {
	return core.KafkaSASL{Mechanism: p.GetMechanism(), User: p.GetUser(), PasswordFile: p.GetPasswordFile()}
}

// Stock gives one stock row for the wire.
func Stock(s core.StockFacts) *pb.StockFacts {
	return &pb.StockFacts{
		CampaignId: string(s.Key.Campaign), SkuId: string(s.Key.SKU),
		Granted: s.Granted.Int32(), Available: s.Available.Int32(), Reserved: s.Reserved.Int32(), Confirmed: s.Confirmed.Int32(),
		Released: s.Released, Version: s.Version,
		AdjustmentVersion: s.AdjustmentVersion, LastNumber: s.LastNumber, LastAdjustmentId: s.LastAdjustmentID, BookRecordId: s.BookRecordID,
	}
}

// FromStock reads one stock row.
func FromStock(p *pb.StockFacts) (core.StockFacts, error) {
	var r reader
	s := core.StockFacts{
		Key:     key(p.GetCampaignId(), p.GetSkuId()),
		Granted: r.units("granted", p.GetGranted()), Available: r.units("available", p.GetAvailable()),
		Reserved: r.units("reserved", p.GetReserved()), Confirmed: r.units("confirmed", p.GetConfirmed()),
		Released: p.GetReleased(), Version: p.GetVersion(),
		AdjustmentVersion: p.GetAdjustmentVersion(), LastNumber: p.GetLastNumber(), LastAdjustmentID: p.GetLastAdjustmentId(), BookRecordID: p.GetBookRecordId(),
	}
	return s, r.err
}

// Units gives units of one SKU for the wire.
func Units(u core.SKUUnits) *pb.SkuUnits {
	return &pb.SkuUnits{CampaignId: string(u.Key.Campaign), SkuId: string(u.Key.SKU), Units: u.Units.Int32()}
}

// FromUnits reads units of one SKU.
func FromUnits(p *pb.SkuUnits) (core.SKUUnits, error) {
	var r reader
	u := core.SKUUnits{Key: key(p.GetCampaignId(), p.GetSkuId()), Units: r.units("units", p.GetUnits())}
	return u, r.err
}

// Term gives a term for the wire.
func Term(t core.Term) *pb.Term { return &pb.Term{Count: t.Count, Id: t.ID} }

// FromTerm reads a term.
func FromTerm(p *pb.Term) core.Term { return core.Term{Count: p.GetCount(), ID: p.GetId()} }

func key(campaign, sku string) core.BookKey {
	return core.BookKey{Campaign: ids.CampaignID(campaign), SKU: ids.SKUID(sku)}
}
