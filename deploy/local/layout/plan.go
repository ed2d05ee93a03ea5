package layout

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/cellquota/cellquota/deploy/local/platform"
)

// Database is the name of every shard's database.
const Database = "cellquota"

// Plan is a platform before it runs. Process names are those of
// platform.Process; addresses are host:port.
type Plan struct {
	Options       Options
	Etcd          Etcd
	Kafka         Kafka
	ControlPlanes []Server
	Edges         []Server
	Cells         []Cell

	settings settings
}

// Etcd is the cluster: one member, or three. They start together, for a member
// serves only when most of them do.
type Etcd struct{ Members []EtcdMember }

// EtcdMember is one process of the cluster.
type EtcdMember struct{ Name, Client, Peer string }

// etcdStep is the name of the cluster: of its one member, and of the step of a
// start that brings all members up.
const etcdStep = "etcd"

// Name is what waits for etcd waits for.
func (e Etcd) Name() string { return etcdStep }

// Clients are the members' client addresses.
func (e Etcd) Clients() []string {
	var addrs []string
	for _, m := range e.Members {
		addrs = append(addrs, m.Client)
	}
	return addrs
}

// etcdNames are the members' names: etcd alone, or etcd-1 to etcd-3.
func (o Options) etcdNames() []string {
	if o.Etcd == EtcdSingle {
		return []string{etcdStep}
	}
	var names []string
	for i := range etcdMembers {
		names = append(names, numbered(etcdStep, i))
	}
	return names
}

// etcdMembers is how many a cluster3 has.
const etcdMembers = 3

// Kafka is the one broker; Controller is Apache Kafka's own.
type Kafka struct{ Name, Addr, Controller string }

// Server is a cellquotad process. Addr is gRPC, for an edge HTTP.
type Server struct {
	Name    string
	Command string // controlplane, cell or edge
	Addr    string
	Metrics string
	Roles   []string // of a cell's process
}

// Cell is a cell with its stores.
type Cell struct {
	ID        string
	Region    string
	Topic     string
	Redis     Store
	Postgres  Store
	Replicas  *Replicas // nil unless replicated
	Processes []Server
}

// Replicas are what a replicated cell has besides.
type Replicas struct {
	Redis     Store
	Sentinels []Store
	Postgres  Store
}

// Store is a redis-server or a PostgreSQL server.
type Store struct{ Name, Addr string }

// Roles of a cell's process, the admitting one first.
var Roles = []string{"admission", "relay", "orders", "closer", "outbox", "reconcile"}

// topicPartitions is how many partitions a cell's topic has.
const topicPartitions = 1

// instanceGroup is the group of every cell's processes: one installation.
const instanceGroup = "local"

// New plans the platform of o; addr gives each named port its address. o must
// have passed Check.
func New(o Options, addr func(port string) string) (Plan, error) {
	set, err := parseSettings(o.Set, o)
	if err != nil {
		return Plan{}, err
	}
	server := func(command, name string, roles []string) Server {
		kind := "grpc"
		if command == "edge" {
			kind = "http"
		}
		return Server{Name: name, Command: command, Roles: roles, Addr: addr(name + "/" + kind), Metrics: addr(name + "/metrics")}
	}
	p := Plan{
		Options: o, settings: set,
		Kafka: Kafka{Name: "kafka", Addr: addr("kafka"), Controller: addr("kafka/controller")},
	}
	for _, name := range o.etcdNames() {
		p.Etcd.Members = append(p.Etcd.Members, EtcdMember{Name: name, Client: addr(name), Peer: addr(name + "/peer")})
	}
	for i := range o.ControlPlanes {
		p.ControlPlanes = append(p.ControlPlanes, server("controlplane", numbered("controlplane", i), nil))
	}
	for i := range o.Edges {
		p.Edges = append(p.Edges, server("edge", numbered("edge", i), nil))
	}
	for i := range o.Cells {
		id := numbered("cell", i)
		c := Cell{
			ID: id, Region: o.Regions[i%len(o.Regions)], Topic: "cellquota.admissions." + id,
			Redis:    Store{id + "/redis", addr(id + "/redis")},
			Postgres: Store{id + "/postgres", addr(id + "/postgres")},
		}
		if o.Replicated {
			c.Replicas = newReplicas(id, addr)
		}
		for n, roles := range o.processRoles() {
			c.Processes = append(c.Processes, server("cell", id+"/"+processName(n), roles))
		}
		p.Cells = append(p.Cells, c)
	}
	return p, nil
}

// processRoles gives the roles of each process of a cell.
func (o Options) processRoles() [][]string {
	sets := [][]string{Roles}
	if o.SplitRoles {
		sets = nil
		for _, r := range Roles {
			sets = append(sets, []string{r})
		}
	}
	var all [][]string
	for range o.Processes {
		all = append(all, sets...)
	}
	return all
}

func processName(index int) string { return fmt.Sprintf("p%d", index+1) }

// PortNames lists the ports that a platform of o needs.
func PortNames(o Options) []string {
	var names []string
	_, _ = New(o, func(port string) string { // its error is Check's
		names = append(names, port)
		return ""
	})
	slices.Sort(names)
	return names
}

// Endpoints is the plan in the shape that others see; the process ids are 0.
func (p Plan) Endpoints(s Secrets) platform.Endpoints {
	url := p.url
	e := platform.Endpoints{
		Etcd:  platform.Etcd{Endpoints: p.Etcd.Clients(), PIDs: make([]int, len(p.Etcd.Members))},
		Kafka: platform.Kafka{Kind: p.Options.Kafka, Brokers: []string{p.Kafka.Addr}},
		TLS:   p.endpointsTLS(), Operators: s.Operators, PaymentSecret: s.Payment, PaymentKeyID: keyID,
	}
	for _, c := range p.ControlPlanes {
		e.ControlPlanes = append(e.ControlPlanes, platform.ControlPlane{GRPC: c.Addr, Metrics: url(c.Metrics), Log: p.Log(c.Name)})
	}
	for _, g := range p.Edges {
		e.Edges = append(e.Edges, platform.Edge{HTTP: url(g.Addr), Metrics: url(g.Metrics), Log: p.Log(g.Name)})
	}
	for _, c := range p.Cells {
		e.Cells = append(e.Cells, p.cellEndpoints(c, s))
	}
	return e
}

func (p Plan) cellEndpoints(c Cell, s Secrets) platform.Cell {
	out := platform.Cell{
		CellID: c.ID, Region: c.Region,
		GRPC: c.Processes[0].Addr, Metrics: p.url(c.Processes[0].Metrics),
		Redis: c.Redis.Addr, Topic: c.Topic,
		Postgres: p.DSN(s, c, RoleReader), PostgresSuperuser: p.DSN(s, c, RoleSuperuser),
		PostgresData: p.PostgresData(c.Postgres),
	}
	if c.Replicas != nil {
		out.Replicas = &platform.Replicas{
			Redis: c.Replicas.Redis.Addr, Sentinels: c.Sentinels(), SentinelPIDs: make([]int, len(c.Replicas.Sentinels)),
			PostgresSuperuser: p.ServerDSN(s, c, c.Replicas.Postgres, RoleSuperuser, Database), PostgresData: p.PostgresData(c.Replicas.Postgres),
		}
	}
	for n := range topicPartitions {
		out.Partitions = append(out.Partitions, n)
	}
	for _, proc := range c.Processes {
		out.Processes = append(out.Processes, platform.CellProcess{
			Roles: proc.Roles, GRPC: proc.Addr, Metrics: p.url(proc.Metrics), Log: p.Log(proc.Name),
		})
	}
	return out
}

// Paths below the data directory. Names with a slash are folders.

func (p Plan) path(parts ...string) string {
	return filepath.Join(append([]string{p.Options.DataDir}, parts...)...)
}

// Log is where a process's output goes.
func (p Plan) Log(process string) string { return p.path("log", process+".log") }

// Config is the configuration file of a cellquotad process.
func (p Plan) Config(process string) string { return p.path("config", process+".yaml") }

// EtcdMade is the file that stands for an etcd that has once been ready whole.
func (p Plan) EtcdMade() string { return p.etcdMade(p.Options.Etcd) }

// OtherEtcdMade is the same of the other kind of etcd: where it is, this data
// directory belongs to that kind.
func (p Plan) OtherEtcdMade() string {
	if p.Options.Etcd == EtcdSingle {
		return p.etcdMade(EtcdCluster3)
	}
	return p.etcdMade(EtcdSingle)
}

func (p Plan) etcdMade(kind string) string {
	if kind == EtcdSingle {
		return p.path("data", "etcd.made")
	}
	return p.path("data", "etcd-cluster.made")
}

// StoreDir is where etcd's members, kafka and the redis-servers keep their data.
func (p Plan) StoreDir(process string) string { return p.path("data", process) }

// PostgresHome belongs to the user that PostgreSQL runs as; its configuration
// file lies there, and below it the data directory.
func (p Plan) PostgresHome(server Store) string { return p.path("data", server.Name) }

// PostgresData is the server's data directory.
func (p Plan) PostgresData(server Store) string {
	return filepath.Join(p.PostgresHome(server), postgresDataName)
}

// RedisConfig is the configuration file of a redis-server or sentinel.
func (p Plan) RedisConfig(server Store) string { return p.path("config", server.Name+".conf") }

// CellFile is what `cellctl cell provision -f` reads.
func (p Plan) CellFile(c Cell) string { return p.path("config", c.ID, "cell.yaml") }

// ProvisionEndpoints is the endpoints file that cellctl uses before the
// platform is ready. It is removed then.
func (p Plan) ProvisionEndpoints() string { return p.path("provision-endpoints.json") }

func (p Plan) keysDir() string { return p.path("keys") }
