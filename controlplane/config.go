package controlplane

import (
	"time"

	"github.com/cellquota/cellquota/internal/config"
)

// Config is everything a control-plane replica can be told.
type Config struct {
	config.Common

	GRPCAddr      string `config:"grpc_addr" default:"127.0.0.1:7400" min:"1" doc:"where operators, edges and cells call, host:port"`
	AdvertiseAddr string `config:"advertise_addr" default:"" doc:"how others reach grpc_addr; empty: grpc_addr itself"`
	TrustDomain   string `config:"trust_domain" default:"cellquota" doc:"DOMAIN of certificates spiffe://DOMAIN/cell/ID and /edge/ID"`
	OperatorsFile string `config:"operators_file" required:"true" doc:"operators, their roles, regions and token digests, YAML"`
	KeysDir       string `config:"keys_dir" default:"" doc:"directory of the signing keys; the control plane reads names only"`
	SecretsDir    string `config:"secrets_dir" default:"" doc:"where files must lie that a cell's spec has this program read (addresses, passwords, certificates); a region-operator names those of secrets_dir/REGION only. Empty: anywhere, but only an sre has a password or certificate read that is shown to an address of the spec"`
	ArchiveDir    string `config:"archive_dir" default:"" doc:"where settled journals are archived; shared by all replicas"`

	Etcd        Etcd          `config:"etcd"`
	LeaseTTL    time.Duration `config:"lease_ttl" default:"5s" min:"1s" max:"5m" doc:"life of a cell process's lease without keep-alives"`
	ApprovalTTL time.Duration `config:"approval_ttl" default:"24h" min:"1m" max:"720h" doc:"how long an operation waits for a second person's approval; then it is aborted"`
	LeaderTTL   time.Duration `config:"leader_ttl" default:"5s" min:"1s" max:"1m" doc:"how long a dead leader blocks the next"`
	Fence       Fence         `config:"fence"`
	Link        Link          `config:"link"`
	Routes      Routes        `config:"routes"`
	Restore     Restore       `config:"restore"`
	Planner     Planner       `config:"planner"`
	Settle      Settle        `config:"settle"`
	Audit       Audit         `config:"audit"`
	Operations  Operations    `config:"operations"`
	Publish     Publish       `config:"publish"`
	CellCheck   Check         `config:"check"`
}

// Etcd says where the records are.
type Etcd struct {
	Endpoints []string      `config:"endpoints" required:"true" min:"1" doc:"client addresses of etcd's members, host:port"`
	Prefix    string        `config:"prefix" default:"/cellquota" min:"2" doc:"first part of every key, without a slash at its end"`
	Timeout   time.Duration `config:"timeout" default:"3s" min:"100ms" max:"1m" doc:"of one read or one commit"`
	// CompactKeep: what is older is given up by the leader; below a minute counts as a minute.
	CompactKeep time.Duration `config:"compact_keep" default:"10m" min:"0s" max:"720h" doc:"how much of etcd's history the leader keeps, at least 1m; what is older it compacts. 0: it compacts never, and etcd's own auto-compaction has to"`

	TLS config.StoreTLS `config:"tls"`
}

// Fence paces fencing.
type Fence struct {
	LockTimeout   time.Duration `config:"lock_timeout" default:"1s" min:"10ms" max:"1m" doc:"how long a cell's writers may finish before the fence ends their backends"`
	RetryInterval time.Duration `config:"retry_interval" default:"1s" min:"10ms" max:"1m" doc:"pause before a step of a fence, reclaim or restore is tried again"`
}

// Link judges what comes over the cells' streams.
type Link struct {
	ReportStaleAfter time.Duration `config:"report_stale_after" default:"5s" min:"100ms" max:"10m" doc:"age from which a cell's last report is stale: AUTO top-ups and rebalances leave the cell alone"`
}

// Routes serves the edges.
type Routes struct {
	StaleAfter time.Duration `config:"stale_after" default:"10s" min:"1s" max:"10m" doc:"age of this replica's view from which it sends its edges to another replica; they serve what they know meanwhile"`
	EdgeMemory time.Duration `config:"edge_memory" default:"5m" min:"1s" max:"24h" doc:"how long an edge counts as alive after its stream to this replica ended: key rotate waits until it has the key, or is forgotten"`
}

// Restore paces restores.
type Restore struct {
	CloseGrace time.Duration `config:"close_grace" default:"2s" min:"0s" max:"1h" doc:"how long a restored shard only settles before it sells again"`
}

// Planner paces the leader's loop.
type Planner struct {
	Interval time.Duration `config:"interval" default:"200ms" min:"10ms" max:"1m" doc:"between two passes when nothing happens"`
	// Of rebalances with policy AUTO, and of the plans of cellctl quota rebalance.
	RebalanceEvery   time.Duration `config:"rebalance_every" default:"10s" min:"100ms" max:"1h" doc:"least time between two AUTO rebalances of one SKU"`
	RebalanceHorizon time.Duration `config:"rebalance_horizon" default:"1m" min:"1s" max:"24h" doc:"how far ahead a cell's need is counted from its rate of demand; never past close_at"`
}

// Audit bounds what etcd keeps of the audit.
type Audit struct {
	Keep time.Duration `config:"keep" default:"168h" min:"1m" max:"8760h" doc:"how long audit records and dead tokens stay in etcd; older audit goes to archive_dir, or away without one"`
}

// Operations bounds what etcd keeps of what is over.
type Operations struct {
	Keep time.Duration `config:"keep" default:"168h" min:"1h" max:"8760h" doc:"how long ended operations, decided approvals and replaced proofs stay in etcd; those about a campaign stay as long as its journal; a command repeated with its operation id after that begins anew"`
}

// Settle paces what ends campaigns.
type Settle struct {
	Interval time.Duration `config:"interval" default:"1s" min:"10ms" max:"10m" doc:"between two looks at what is sold out for good, and at campaigns that are over"`
	After    time.Duration `config:"after" default:"30s" min:"0s" max:"24h" doc:"how long after its end a campaign settles at the earliest; more than clocks differ"`
}

// Check bounds a look at a cell's parts.
type Check struct {
	Timeout      time.Duration `config:"timeout" default:"5s" min:"100ms" max:"1m" doc:"how long each part of a cell may take to answer cellctl cell check; the parts are asked side by side"`
	MaxClockSkew time.Duration `config:"max_clock_skew" default:"500ms" min:"1ms" max:"1m" doc:"how far the clocks of a cell's Redis and PostgreSQL may differ from this process's and from each other's before cell check names it"`
	MinRetention time.Duration `config:"min_retention" default:"24h" min:"1m" max:"87600h" doc:"least retention of a cell's topics before cell check names it; longer than the oldest shard backup that may be restored"`
}

// Publish bounds a publish.
type Publish struct {
	AckTimeout time.Duration `config:"ack_timeout" default:"20s" min:"100ms" max:"1h" doc:"how long a publish waits for an edge that is connected but does not acknowledge"`
}

// Check binds fields to each other.
func (c Config) Check(problem func(key, rule string)) {
	c.Etcd.TLS.Check(problem, "etcd.tls", c.Dev, c.Etcd.Endpoints)
}

// advertised is how others reach this replica.
func (c Config) advertised() string {
	if c.AdvertiseAddr != "" {
		return c.AdvertiseAddr
	}
	return c.GRPCAddr
}
