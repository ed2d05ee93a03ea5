package campaignfile

import (
	"github.com/cellquota/cellquota/controlplane/convert"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/ids"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// CellProto reads cell.yaml for the wire, on the operator's side.
func CellProto(text string) (*pb.CellSpec, []Fault) {
	spec, faults := ParseCell(text)
	if len(faults) > 0 {
		return nil, faults
	}
	return convert.CellSpec(spec), nil
}

// ParseCell reads cell.yaml. The spec is valid when there are no faults.
func ParseCell(text string) (core.CellSpec, []Fault) {
	f, root := parse(text)
	if root == nil {
		return core.CellSpec{}, f.sorted()
	}
	root.header("Cell")
	id := ids.CellID(root.text("cell_id", ""))
	redis, kafka, shard := root.child("redis"), root.child("kafka"), root.child("shard")
	spec := core.CellSpec{
		ID: id, Region: root.text("region", ""), InstanceGroup: root.text("instance_group", ""),
		Weight: uint32(root.count("weight", 1)),
		Redis: core.RedisSpec{
			Mode: redis.text("mode", "standalone"), Addrs: redis.texts("addrs"), PasswordFile: redis.text("password_file", ""), MasterName: redis.text("master_name", ""),
			TLS: redis.storeTLS(),
		},
		Kafka: core.KafkaSpec{
			Brokers: kafka.texts("brokers"), Topic: kafka.text("topic", core.DefaultTopic(id)),
			Partitions: kafka.count("partitions", 1), Replication: kafka.count("replication", 1),
			TLS: kafka.storeTLS(), SASL: kafka.sasl(),
		},
		Shard: core.ShardSpec{
			DSNFile: shard.text("dsn_file", ""), ReaderDSNFile: shard.text("reader_dsn_file", ""), FencerDSNFile: shard.text("fencer_dsn_file", ""),
			Replicated: shard.flag("replicated", false),
		},
	}
	for _, o := range []*object{redis, kafka, shard, root} {
		o.noSecrets("password", "dsn", "reader_dsn", "fencer_dsn")
		o.close()
	}
	f.add(spec.Check())
	if faults := f.sorted(); len(faults) > 0 {
		return core.CellSpec{}, faults
	}
	return spec, nil
}

// storeTLS reads the block tls of a store; without one the store is reached in plain text.
func (o *object) storeTLS() core.StoreTLS {
	t := o.child("tls")
	t.noSecrets("ca", "cert", "key")
	defer t.close()
	return core.StoreTLS{CAFile: t.text("ca_file", ""), CertFile: t.text("cert_file", ""), KeyFile: t.text("key_file", ""), ServerName: t.text("server_name", "")}
}

// sasl reads the login at the brokers.
func (o *object) sasl() core.KafkaSASL {
	l := o.child("sasl")
	l.noSecrets("password")
	defer l.close()
	return core.KafkaSASL{Mechanism: l.text("mechanism", ""), User: l.text("user", ""), PasswordFile: l.text("password_file", "")}
}
