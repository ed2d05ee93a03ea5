package cell

import (
	"regexp"
	"time"

	"github.com/cellquota/cellquota/internal/config"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/redisconn"
)

// Config is everything a cell process can be told.
type Config struct {
	config.Common

	CellID        string   `config:"cell_id" required:"true" doc:"the cell that this process belongs to"`
	InstanceID    string   `config:"instance_id" default:"" doc:"name of this process, unique per start; empty: host, pid and a random part"`
	InstanceGroup string   `config:"instance_group" required:"true" doc:"group of processes that may hold the cell; another group takes over by fence and restore"`
	Region        string   `config:"region" default:"" doc:"region of the cell, for logs"`
	Roles         []string `config:"roles" default:"admission,relay,orders,closer,outbox,reconcile" min:"1" oneof:"admission,relay,orders,closer,outbox,reconcile" doc:"what this process does"`
	GRPCAddr      string   `config:"grpc_addr" default:"127.0.0.1:7443" min:"1" doc:"where edges and the control plane call, host:port"`
	AdvertiseAddr string   `config:"advertise_addr" default:"" doc:"the address that edges are told; empty: grpc_addr"`
	TrustDomain   string   `config:"trust_domain" default:"cellquota" min:"1" doc:"domain of the SPIFFE names in callers' certificates"`

	ControlPlane ControlPlane  `config:"control_plane"`
	Redis        Redis         `config:"redis"`
	Kafka        Kafka         `config:"kafka"`
	Shard        Shard         `config:"shard"`
	KeysDir      string        `config:"keys_dir" required:"true" doc:"directory with permit/ and receipt/, one file per key"`
	ClockOffset  time.Duration `config:"clock_offset" default:"0s" dev:"true" doc:"shifts this process's idea of now; only with dev"`
	MaxClockSkew time.Duration `config:"max_clock_skew" default:"500ms" min:"1ms" max:"1m" doc:"how far this process's clock, Redis and PostgreSQL may differ before readyz says so"`

	Admission Admission `config:"admission"`
	Direct    Direct    `config:"direct"`
	Entries   Entries   `config:"entries"`
	Relay     Relay     `config:"relay"`
	Orders    Orders    `config:"orders"`
	Closer    Closer    `config:"closer"`
	Outbox    Outbox    `config:"outbox"`
	Payment   Payment   `config:"payment"`
	Provider  Provider  `config:"provider"`
	Refund    Refund    `config:"refund"`
	Rebuild   Rebuild   `config:"rebuild"`
	Reconcile Reconcile `config:"reconcile"`
	Retention Retention `config:"retention"`
	Gate      Gate      `config:"gate"`
	Status    Status    `config:"status"`
	Link      Link      `config:"link"`
	Report    Report    `config:"report"`
}

// Check binds fields to each other and to grammars.
func (c Config) Check(problem func(key, rule string)) {
	if c.CellID != "" {
		if _, err := ids.ParseCellID(c.CellID); err != nil {
			problem("cell_id", err.Error())
		}
	}
	for _, f := range c.Redis.target().Check() {
		if c.Redis.Mode != "" && len(c.Redis.Addrs) > 0 { // an absent one was named already
			problem("redis."+f.Field, f.Rule)
		}
	}
	switch {
	case c.Provider.Kind != "http":
	case c.Provider.URL == "":
		problem("provider.url", "is required with provider.kind http")
	case !config.Encrypted(c.Provider.URL, c.Dev):
		problem("provider.url", "must begin with https:// unless dev: true and on loopback")
	}
	if !memberName.MatchString(c.Orders.Member) {
		problem("orders.member", "must be at most 249 of A-Z a-z 0-9 . _ -")
	}
	c.Redis.TLS.Check(problem, "redis.tls", c.Dev, c.Redis.Addrs)
	c.Kafka.TLS.Check(problem, "kafka.tls", c.Dev, c.Kafka.Brokers)
	c.Kafka.SASL.Check(problem, "kafka.sasl")
}

// memberName is what a broker takes as the name of a group's member.
var memberName = regexp.MustCompile(`^[A-Za-z0-9._-]{0,249}$`)

// ControlPlane says where the process registers.
type ControlPlane struct {
	Addrs []string `config:"addrs" required:"true" min:"1" doc:"gRPC addresses of control-plane replicas"`
}

// Redis says where the mirror is.
type Redis struct {
	Mode         string        `config:"mode" default:"standalone" oneof:"standalone,sentinel,cluster" doc:"kind of Redis"`
	Addrs        []string      `config:"addrs" required:"true" min:"1" doc:"the server, the sentinels or nodes of the cluster, host:port"`
	MasterName   string        `config:"master_name" default:"cellquota" doc:"name of the master that sentinels watch; only they are asked for it"`
	PasswordFile string        `config:"password_file" default:"" doc:"file with the password; empty: none"`
	PoolSize     int           `config:"pool_size" default:"0" min:"0" max:"10000" doc:"connections that admit; 0: ten per processor"`
	Timeout      time.Duration `config:"timeout" default:"500ms" min:"10ms" max:"10s" doc:"of one read or write"`

	TLS config.StoreTLS `config:"tls"`
}

// target is what is dialled; only sentinels are asked for a master by name.
func (r Redis) target() redisconn.Target {
	t := redisconn.Target{Mode: r.Mode, Addrs: r.Addrs}
	if r.Mode == redisconn.Sentinel {
		t.MasterName = r.MasterName
	}
	return t
}

// Kafka says where the log is.
type Kafka struct {
	Brokers         []string      `config:"brokers" required:"true" min:"1" doc:"seed brokers, host:port"`
	Topic           string        `config:"topic" default:"" doc:"topic of admissions; empty: cellquota.admissions.CELL"`
	Partitions      int           `config:"partitions" default:"1" min:"1" max:"1000" doc:"partitions of that topic"`
	Linger          time.Duration `config:"linger" default:"1ms" min:"0s" max:"100ms" doc:"how long the producer waits for more records"`
	DeliveryTimeout time.Duration `config:"delivery_timeout" default:"10s" min:"1s" max:"1m" doc:"after which a record is left to the sweeper"`

	TLS  config.StoreTLS `config:"tls"`
	SASL config.SASL     `config:"sasl"`
}

// Shard says where the truth is.
type Shard struct {
	DSNFile          string        `config:"dsn_file" required:"true" doc:"file with the address of PostgreSQL as role cellquota_app; sslmode=verify-full unless dev and on loopback"`
	MaxConns         int32         `config:"max_conns" default:"16" min:"2" max:"1000" doc:"connections of this process"`
	LockTimeout      time.Duration `config:"lock_timeout" default:"2s" min:"10ms" max:"1m" doc:"longest wait for one lock"`
	StatementTimeout time.Duration `config:"statement_timeout" default:"10s" min:"100ms" max:"5m" doc:"longest statement"`
	IdleTimeout      time.Duration `config:"idle_in_transaction_timeout" default:"5s" min:"100ms" max:"5m" doc:"longest silence inside a transaction"`
	HeartbeatGap     time.Duration `config:"heartbeat_gap" default:"3s" min:"1s" max:"1m" doc:"a longer gap between heartbeats means the shard was away, and closing waits anew"`
	Replicated       bool          `config:"replicated" default:"false" doc:"refuse a shard whose commits do not wait for a standby"`
}

// Admission bounds what edges may ask at once.
type Admission struct {
	BatchMax      int           `config:"batch_max" default:"256" min:"1" max:"1000" doc:"asks in one pipeline to Redis"`
	BatchWait     time.Duration `config:"batch_wait" default:"0s" min:"0s" max:"10ms" doc:"how long answers wait for others of their stream before they are sent"`
	Batches       int           `config:"batches" default:"64" min:"1" max:"10000" doc:"batches being decided at once in this process"`
	StreamBatches int           `config:"stream_batches" default:"16" min:"1" max:"1000" doc:"batches of one stream being decided at once"`
	AckWait       time.Duration `config:"ack_wait" default:"1s" min:"0s" max:"1m" doc:"longest wait for the log's acknowledgement before a request is answered as ADMITTED"`
	Timeout       time.Duration `config:"timeout" default:"2s" min:"10ms" max:"1m" doc:"longest wait for Redis; a later answer is of unknown outcome"`
	StreamMax     int           `config:"stream_max" default:"100000" min:"1" max:"100000000" doc:"admissions of one mirror that the log has not acknowledged; more are QUEUE_FULL"`
}

// Direct bounds what is sold by the shard alone: campaigns of admission DATABASE, and those with a
// gate.baseline_rps while Redis is away.
type Direct struct {
	Batch         int           `config:"batch" default:"200" min:"1" max:"1000" doc:"requests in one transaction"`
	Queue         int           `config:"queue" default:"2000" min:"1" max:"100000" doc:"requests that wait for a transaction in this process; more are answered QUEUE_FULL"`
	Timeout       time.Duration `config:"timeout" default:"2s" min:"10ms" max:"1m" doc:"longest wait for the shard; a later answer is of unknown outcome"`
	BaselineAfter time.Duration `config:"baseline_after" default:"3s" min:"100ms" max:"10m" doc:"how long Redis must be away before campaigns with a gate.baseline_rps are sold by the shard alone"`
}

// Entries bounds the taking of lotteries' entries.
type Entries struct {
	Batch   int           `config:"batch" default:"200" min:"1" max:"500" doc:"entries in one transaction"`
	Queue   int           `config:"queue" default:"5000" min:"1" max:"100000" doc:"entries that wait for a transaction in this process; more are refused and may come again"`
	Timeout time.Duration `config:"timeout" default:"2s" min:"10ms" max:"1m" doc:"longest wait for the shard; a later answer is of unknown outcome"`
}

// Relay paces sweeper and scanner.
type Relay struct {
	SweepAfter   time.Duration `config:"sweep_after" default:"2s" min:"100ms" max:"10m" doc:"age at which an unacknowledged admission is produced again"`
	Interval     time.Duration `config:"interval" default:"0s" min:"0s" max:"10m" doc:"between sweeps; 0: half of sweep_after"`
	ScanAfter    time.Duration `config:"scan_after" default:"10s" min:"100ms" max:"1h" doc:"age at which an admission without an outcome is looked at"`
	ScanInterval time.Duration `config:"scan_interval" default:"5s" min:"50ms" max:"1h" doc:"between such looks"`
}

// Orders bounds the batches of orders.
type Orders struct {
	BatchMax  int           `config:"batch_max" default:"500" min:"1" max:"5000" doc:"messages in one transaction"`
	BatchWait time.Duration `config:"batch_wait" default:"2ms" min:"0s" max:"1s" doc:"how long a batch waits for more messages"`
	// The brokers' group.min.session.timeout.ms (6 s by default) is the least they accept.
	Member         string        `config:"member" default:"" doc:"name of this process in the consumer group, the same after each restart and of no other process of the cell: its partitions wait for it and are its again at once; empty: nameless, and after a crash they wait for session_timeout"`
	SessionTimeout time.Duration `config:"session_timeout" default:"6s" min:"1s" max:"5m" doc:"how long the group keeps the partitions of a process that died without a word"`
}

// Closer paces the closing of unpaid orders.
type Closer struct {
	Interval     time.Duration `config:"interval" default:"200ms" min:"10ms" max:"1m" doc:"between rounds"`
	Batch        int           `config:"batch" default:"200" min:"1" max:"500" doc:"orders closed in one transaction"`
	RestoreGrace time.Duration `config:"restore_grace" default:"2s" min:"0s" max:"1h" doc:"after a restore: callbacks that waited come first"`
}

// Outbox paces what leaves the shard.
type Outbox struct {
	Interval time.Duration `config:"interval" default:"20ms" min:"1ms" max:"10s" doc:"between looks while there is something to do"`
	Batch    int           `config:"batch" default:"500" min:"1" max:"5000" doc:"rows claimed at once"`
	Keep     time.Duration `config:"keep" default:"1h" min:"1m" max:"720h" doc:"how long a row stays after it left; status pages and mirrors need none of them"`
	Prune    time.Duration `config:"prune_interval" default:"30s" min:"1s" max:"1h" doc:"between walks that delete rows that left longer ago"`
}

// Retention bounds what settled campaigns leave in the cell.
type Retention struct {
	ArchiveAfter time.Duration `config:"archive_after" default:"24h" min:"1s" max:"8760h" doc:"after a campaign has settled: its receipts end, its mirror leaves Redis, its ledger moves to the archive"`
	Replay       time.Duration `config:"replay" default:"168h" min:"1s" max:"8760h" doc:"how long a message can be replayed: longer than the log keeps it and than the oldest backup that may be restored; an archived campaign's inbox rows go after it"`
	Interval     time.Duration `config:"interval" default:"1m" min:"10ms" max:"1h" doc:"between looks for what has settled"`
	Page         int           `config:"page" default:"5000" min:"1" max:"50000" doc:"ledger entries or inbox rows moved or deleted in one transaction"`
}

// Payment bounds how long payments keep orders open.
type Payment struct {
	Grace          time.Duration `config:"grace" default:"5s" min:"0s" max:"1h" doc:"after the shard could be written again: callbacks come before closing"`
	AttemptGrace   time.Duration `config:"attempt_grace" default:"1m" min:"0s" max:"24h" doc:"how long after expires_at an open attempt postpones closing"`
	CallbackWindow time.Duration `config:"callback_window" default:"5m" min:"1s" max:"1h" doc:"how far the time of a callback's signature may be off; the edge verifies it"`
}

// Provider is the payment channel that the closer asks.
type Provider struct {
	Kind    string        `config:"kind" default:"sandbox" oneof:"sandbox,http" doc:"sandbox knows no attempt; http asks url"`
	URL     string        `config:"url" default:"" doc:"address of the channel: inquiries and refunds"`
	Timeout time.Duration `config:"timeout" default:"2s" min:"10ms" max:"1m" doc:"of one question"`
	KeyID   string        `config:"key_id" default:"" doc:"payment key of keys_dir that signs questions; answers must then be signed too. Empty: neither is"`
	// Acceptance looks at a late payment's state before its refund ends.
	RefundAfter time.Duration `config:"refund_after" default:"5s" min:"0s" max:"24h" doc:"sandbox: how long a refund stays pending"`
}

// Refund paces the refunds that the channel is asked for.
type Refund struct {
	Interval   time.Duration `config:"interval" default:"500ms" min:"10ms" max:"1m" doc:"between rounds"`
	Batch      int           `config:"batch" default:"100" min:"1" max:"500" doc:"refunds asked for, and orders of cancelled campaigns swept, in one round"`
	BackoffMin time.Duration `config:"backoff_min" default:"1s" min:"10ms" max:"1h" doc:"first pause before the channel is asked again; doubled every time"`
	BackoffMax time.Duration `config:"backoff_max" default:"1m" min:"100ms" max:"24h" doc:"longest such pause; a refund that reaches it is an error in the log at every question"`
}

// Rebuild paces the making of mirrors.
type Rebuild struct {
	Interval  time.Duration `config:"interval" default:"250ms" min:"10ms" max:"1m" doc:"between looks at every mirror"`
	Drain     time.Duration `config:"drain" default:"1s" min:"0s" max:"1m" doc:"how long entries of the old mirror get to reach the log"`
	Timeout   time.Duration `config:"timeout" default:"10s" min:"1s" max:"1h" doc:"after which a rebuild starts over with a new build id"`
	Retention time.Duration `config:"status_retention" default:"24h" min:"1m" max:"720h" doc:"how long request records outlive their campaign's close"`
}

// Gate bounds outstanding admissions.
type Gate struct {
	Interval   time.Duration `config:"interval" default:"200ms" min:"10ms" max:"10s" doc:"between looks at backlog and rate"`
	MinRate    float64       `config:"min_rate" default:"500" min:"1" doc:"orders per second that are assumed at least"`
	Capacity   int64         `config:"capacity" default:"20000" min:"1" doc:"outstanding admissions of one SKU that can be settled with a failure domain down"`
	PauseAfter time.Duration `config:"pause_after" default:"15s" min:"1s" max:"1h" doc:"age of the oldest admission without an outcome at which nothing more is admitted"`
}

// Status bounds reads of the shard for customers' questions.
type Status struct {
	ReadRate int           `config:"read_rate" default:"2000" min:"1" max:"1000000" doc:"reads of the shard per second"`
	Timeout  time.Duration `config:"timeout" default:"1s" min:"10ms" max:"1m" doc:"of one read"`
}

// Reconcile paces and bounds the comparison of the ledgers.
type Reconcile struct {
	Interval      time.Duration `config:"interval" default:"1s" min:"10ms" max:"1h" doc:"between cycles, and looks for runs that were asked for and for open findings"`
	Page          int           `config:"page" default:"1000" min:"10" max:"10000" doc:"rows read at once"`
	Rate          int           `config:"rate" default:"20000" min:"100" max:"10000000" doc:"rows compared per second, but in a run that somebody asked for"`
	InFlight      time.Duration `config:"in_flight" default:"1m" min:"100ms" max:"1h" doc:"an admission without an outcome is under way so long; later it is a finding"`
	Settle        time.Duration `config:"settle" default:"5s" min:"10ms" max:"1h" doc:"an outcome whose effects have left may be missing in the mirror so long"`
	Overdue       time.Duration `config:"overdue" default:"1m" min:"100ms" max:"24h" doc:"an unpaid order may stay open so long after it should have been closed"`
	Confirm       time.Duration `config:"confirm" default:"1s" min:"1ms" max:"1m" doc:"between the first look at a difference and the second, which makes it a finding"`
	ReaderDSNFile string        `config:"reader_dsn_file" default:"" doc:"file with the address of PostgreSQL, perhaps of a standby, as role cellquota_reader, where pages are read; empty: the shard itself"`
	AutoRepair    bool          `config:"auto_repair" default:"true" doc:"send events again and give units back to the mirror without asking; false: propose it"`
	RepairTries   int           `config:"repair_tries" default:"10" min:"1" max:"1000" doc:"automatic repairs of one finding before it waits for a person (repair_budget)"`
	RepairFor     time.Duration `config:"repair_for" default:"60s" min:"1s" max:"24h" doc:"how long automatic repairs of one finding go on before it waits for a person (repair_budget)"`
}

// Link paces the stream to the control plane.
type Link struct {
	Keepalive   time.Duration `config:"keepalive" default:"1s" min:"50ms" max:"1m" doc:"between keep-alives"`
	Timeout     time.Duration `config:"timeout" default:"5s" min:"100ms" max:"1m" doc:"longest silence of the leader before the stream is given up"`
	BackoffMin  time.Duration `config:"backoff_min" default:"200ms" min:"10ms" max:"1m" doc:"first pause before registering again"`
	BackoffMax  time.Duration `config:"backoff_max" default:"5s" min:"10ms" max:"10m" doc:"longest pause before registering again"`
	PauseMargin time.Duration `config:"pause_margin" default:"1s" min:"0s" max:"1m" doc:"how long before the lease's end campaigns with on_lease_loss PAUSE stop"`
}

// Report paces usage reports.
type Report struct {
	Interval time.Duration `config:"interval" default:"200ms" min:"10ms" max:"1m" doc:"between usage reports of the elected process"`
}
