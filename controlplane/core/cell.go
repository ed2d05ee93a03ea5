package core

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
)

// MaxWeight is the largest weight of a cell.
const MaxWeight = 1_000_000

// Cell is the control plane's record of one cell. Liveness is not in it.
type Cell struct {
	Spec  CellSpec
	State CellState // stored state; SUSPECT is never stored
	// Version grows by 1 with every change of the record, from 1.
	Version int64
	// FenceVersion is the cell's epoch; while FENCING the one being installed.
	FenceVersion int64
	// OperationID owns the cell's present move; empty: none.
	OperationID string
	// ProofID names the proof of the last fence; empty: never fenced.
	ProofID string
	// InstanceGroup is the group that may register.
	InstanceGroup string
	// Reclaimed: what the last proof names is booked. Meaningless without a proof.
	Reclaimed bool
	// Paused by an operator: its processes admit nobody; payments and closings go on.
	Paused bool
	// PauseReason is why, at most 1 KiB; empty unless paused.
	PauseReason string
	// LastOperation and LastParameters are of the last pause, resume or update, so
	// that a repeat is known (Repeats).
	LastOperation, LastParameters string
	// ModRevision is etcd's; 0: not stored.
	ModRevision int64
}

// CellSpec is cell.yaml. Secrets are named by file, never held.
type CellSpec struct {
	ID            ids.CellID
	Region        string // [a-z0-9-]{1,63}
	InstanceGroup string // [A-Za-z0-9._-]{1,64}
	Weight        uint32 // 1 to MaxWeight
	Redis         RedisSpec
	Kafka         KafkaSpec
	Shard         ShardSpec
}

// RedisSpec names the cell's Redis.
type RedisSpec struct {
	Mode         string // standalone, sentinel, cluster
	Addrs        []string
	PasswordFile string // "": none is asked for
	MasterName   string // sentinel only; "" is DefaultMaster
	TLS          StoreTLS
}

// DefaultMaster is the name of the master that sentinels are asked for.
const DefaultMaster = "cellquota"

// KafkaSpec names the cell's topic.
type KafkaSpec struct {
	Brokers     []string
	Topic       string
	Partitions  int32
	Replication int32
	TLS         StoreTLS
	SASL        KafkaSASL
}

// ShardSpec names the cell's PostgreSQL by files that the control plane can read.
type ShardSpec struct {
	DSNFile       string // the app role's; read by cells only
	ReaderDSNFile string
	FencerDSNFile string
	Replicated    bool // commits wait for a standby
}

// DefaultTopic is the topic of a cell whose spec names none.
func DefaultTopic(cell ids.CellID) string { return "cellquota.admissions." + string(cell) }

var (
	regionGrammar = regexp.MustCompile(`^[a-z0-9-]{1,63}$`)
	groupGrammar  = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)
	topicGrammar  = regexp.MustCompile(`^[A-Za-z0-9._-]{1,249}$`)
	addrGrammar   = regexp.MustCompile(`^[^\s:/]+:[0-9]{1,5}$|^\[[0-9a-fA-F:]+\]:[0-9]{1,5}$`)
)

// ValidGroup tells whether s can name an instance group.
func ValidGroup(s string) bool { return groupGrammar.MatchString(s) }

// Check gives every broken rule of the spec, with its path.
func (s CellSpec) Check() []rpcstatus.Violation {
	var f faults
	if _, err := ids.ParseCellID(string(s.ID)); err != nil {
		f.addErr(err)
	}
	f.add(!regionGrammar.MatchString(s.Region), "region", "must be 1 to 63 of a-z, 0-9 and -")
	f.add(!groupGrammar.MatchString(s.InstanceGroup), "instance_group", "must be 1 to 64 of A-Z, a-z, 0-9, ., _ and -")
	f.add(s.Weight < 1 || s.Weight > MaxWeight, "weight", "must be from 1 to 1000000")
	f.add(s.Redis.Mode != "standalone" && s.Redis.Mode != "sentinel" && s.Redis.Mode != "cluster", "redis.mode", "must be standalone, sentinel or cluster")
	f.addrs("redis.addrs", s.Redis.Addrs)
	f.add(s.Redis.Mode == "standalone" && len(s.Redis.Addrs) > 1, "redis.addrs", "must be one address in mode standalone: a mirror is on one server")
	f.addrs("kafka.brokers", s.Kafka.Brokers)
	f.add(!topicGrammar.MatchString(s.Kafka.Topic), "kafka.topic", "must be 1 to 249 of A-Z, a-z, 0-9, ., _ and -")
	f.add(s.Kafka.Partitions < 1 || s.Kafka.Partitions > 1000, "kafka.partitions", "must be from 1 to 1000")
	f.add(s.Kafka.Replication < 1 || s.Kafka.Replication > 15, "kafka.replication", "must be from 1 to 15")
	f.storeTLS("redis.tls", s.Redis.TLS)
	f.storeTLS("kafka.tls", s.Kafka.TLS)
	f.sasl("kafka.sasl", s.Kafka.SASL)
	f.add(len(s.Redis.MasterName) > 128 || s.Redis.MasterName != "" && s.Redis.Mode != "sentinel", "redis.master_name", "must have at most 128 bytes and goes with mode sentinel")
	if s.Redis.PasswordFile != "" {
		f.file("redis.password_file", s.Redis.PasswordFile)
	}
	for _, file := range []struct{ field, path string }{
		{"shard.dsn_file", s.Shard.DSNFile},
		{"shard.reader_dsn_file", s.Shard.ReaderDSNFile},
		{"shard.fencer_dsn_file", s.Shard.FencerDSNFile},
	} {
		f.file(file.field, file.path)
	}
	return f
}

// Equal compares two specs.
func (s CellSpec) Equal(other CellSpec) bool { return reflect.DeepEqual(s, other) }

// Check verifies a record that was read or is about to be stored. ErrBroken.
func (c Cell) Check() error {
	if v := c.Spec.Check(); len(v) > 0 {
		return broken("cell %q: %s: %s", c.Spec.ID, v[0].Field, v[0].Rule)
	}
	if !c.State.Valid() || c.State == CellSuspect || c.FenceVersion < 1 || c.Version < 1 || c.InstanceGroup == "" {
		return broken("cell %s: state %s, fence version %d, version %d, group %q", c.Spec.ID, c.State, c.FenceVersion, c.Version, c.InstanceGroup)
	}
	return nil
}

// mayBeGranted: only an ACTIVE cell whose last fence is booked. An unapplied
// grant of before the fence would otherwise stand beside a new one and the
// proof's sum would never come out.
func (c Cell) mayBeGranted() error {
	if c.State != CellActive {
		return c.refuses("grant")
	}
	if c.ProofID != "" && !c.Reclaimed {
		return numbered(ErrNotReclaimed, "cell_id", c.Spec.ID, "proof_id", c.ProofID)
	}
	return nil
}

// MayTakeAs refuses units for a cell that reads as the given state: SUSPECT is
// nowhere stored, and no top-up goes there. ErrCellState, ErrNotReclaimed.
func (c Cell) MayTakeAs(read CellState) error {
	if read != CellSuspect {
		return c.mayBeGranted()
	}
	c.State = read
	return c.refuses("grant")
}

// refuses is ErrCellState with the facts.
func (c Cell) refuses(what string) error {
	return numbered(ErrCellState, "cell_id", c.Spec.ID, "state", c.State, "wanted", what)
}

// faults gathers broken rules.
type faults []rpcstatus.Violation

func (f *faults) add(isBroken bool, field, rule string) {
	if isBroken {
		*f = append(*f, rpcstatus.Violation{Field: field, Rule: rule})
	}
}

func (f *faults) addErr(err error) { f.addErrAt("", err) }

// addErrAt adds a refusal of ids under a path.
func (f *faults) addErrAt(path string, err error) {
	v := violation(err)
	if path != "" {
		v.Field = path
	}
	*f = append(*f, v)
}

// file takes a path, and nothing that is a secret itself: what stands in a record or
// a file of cells is read by more people than a secret may be.
func (f *faults) file(field, path string) {
	f.add(path == "" || len(path) > 4096 || strings.ContainsAny(path, "\x00\r\n"), field, "must name a file, 1 to 4096 bytes")
	f.add(strings.Contains(path, "://") || strings.Contains(path, "password=") || strings.Contains(path, "host="), field,
		"must name a file that holds the address, not be the address: secrets come by file only")
}

func (f *faults) addrs(field string, addrs []string) {
	f.add(len(addrs) == 0 || len(addrs) > 32, field, "must list 1 to 32 addresses host:port")
	for i, a := range addrs {
		f.add(!addrGrammar.MatchString(a), fmt.Sprintf("%s[%d]", field, i), "must be host:port")
	}
}
