package boot

import (
	"context"
	"errors"
	"os"

	"github.com/cellquota/cellquota/deploy/local/layout"
	"github.com/cellquota/cellquota/deploy/local/supervise"
)

// addProcesses tells the supervisor of every process of the plan.
func (b *boot) addProcesses() error {
	errs := []error{
		b.super.Add(supervise.Spec{
			Name: b.plan.Kafka.Name, Path: b.programs.Self, Env: b.env,
			Args:  append([]string{"cellquota-dev"}, b.plan.KafkaArgs(b.secrets, b.programs)...),
			Log:   b.plan.Log(b.plan.Kafka.Name),
			Probe: b.kafkaProbe(b.plan.Kafka.Addr), Tier: tierStores,
		}),
	}
	for _, m := range b.plan.Etcd.Members {
		errs = append(errs, b.super.Add(b.etcdSpec(m)))
	}
	for _, s := range b.plan.ControlPlanes {
		errs = append(errs, b.super.Add(b.serverSpec(s, tierControlPlanes)))
	}
	for _, c := range b.plan.Cells {
		errs = append(errs, b.addCell(c))
	}
	for _, s := range b.plan.Edges {
		errs = append(errs, b.super.Add(b.serverSpec(s, tierEdges)))
	}
	return errors.Join(errs...)
}

func (b *boot) addCell(c layout.Cell) error {
	errs := []error{b.addRedis(c.Redis), b.addPostgres(c, c.Postgres)}
	if r := c.Replicas; r != nil {
		errs = append(errs, b.addRedis(r.Redis), b.addPostgres(c, r.Postgres))
		for _, s := range r.Sentinels {
			errs = append(errs, b.addRedis(s, "--sentinel"))
		}
	}
	for _, s := range c.Processes {
		errs = append(errs, b.super.Add(b.serverSpec(s, tierCells)))
	}
	return errors.Join(errs...)
}

// addRedis adds a redis-server, or a sentinel, which is one with another argument.
func (b *boot) addRedis(s layout.Store, more ...string) error {
	if err := os.MkdirAll(b.plan.StoreDir(s.Name), 0o700); err != nil {
		return err
	}
	return b.super.Add(supervise.Spec{
		Name: s.Name, Path: b.programs.Redis, Env: b.env,
		Args:  append([]string{"redis-server", b.plan.RedisConfig(s)}, more...),
		Log:   b.plan.Log(s.Name),
		Probe: b.redisProbe(s.Addr), Tier: tierStores,
	})
}

func (b *boot) addPostgres(c layout.Cell, s layout.Store) error {
	server, err := b.shardServer(c, s)
	if err != nil {
		return err
	}
	return b.super.Add(b.postgresSpec(server))
}

// serverSpec is a cellquotad process.
func (b *boot) serverSpec(s layout.Server, tier int) supervise.Spec {
	return supervise.Spec{
		Name: s.Name, Path: b.programs.Cellquotad, Env: b.env,
		Args:      []string{"cellquotad", s.Command, "--config", b.plan.Config(s.Name)},
		Log:       b.plan.Log(s.Name),
		Probe:     b.httpProbe(s.Metrics + "/readyz"),
		StopGrace: serverGrace, Tier: tier,
	}
}

// steps is the order of the start, as doc.go draws it.
func (b *boot) steps() []step {
	up := func(name string, after ...string) step {
		return step{name, after, func(ctx context.Context) error { return b.startUntilReady(ctx, name) }}
	}
	steps := []step{{b.plan.Etcd.Name(), nil, b.startEtcd}, up(b.plan.Kafka.Name)}
	var controlPlanes []string
	for _, s := range b.plan.ControlPlanes {
		steps = append(steps, up(s.Name, b.plan.Etcd.Name()))
		controlPlanes = append(controlPlanes, s.Name)
	}
	for _, c := range b.plan.Cells {
		steps = append(steps, b.cellSteps(c, controlPlanes, up)...)
	}
	for _, s := range b.plan.Edges {
		steps = append(steps, up(s.Name, controlPlanes...))
	}
	return steps
}

func (b *boot) cellSteps(c layout.Cell, controlPlanes []string, up func(string, ...string) step) []step {
	schema, provision := c.ID+"/schema", c.ID+"/provision"
	stores, database := b.storeSteps(c, up)
	needs := append([]string{schema, c.Redis.Name, b.plan.Kafka.Name}, controlPlanes...)
	for _, s := range stores {
		needs = append(needs, s.name)
	}
	steps := append(stores,
		step{schema, []string{database}, func(ctx context.Context) error { return b.migrate(ctx, c) }},
		step{provision, needs, func(ctx context.Context) error { return b.provision(ctx, c) }},
	)
	for _, s := range c.Processes {
		steps = append(steps, up(s.Name, provision))
	}
	return steps
}

// storeSteps bring a cell's stores up; the last thing is the shard's database, which a replicated server
// can only commit when it has its standby.
func (b *boot) storeSteps(c layout.Cell, up func(string, ...string) step) (steps []step, database string) {
	server := func(store layout.Store, do func(context.Context, shardServer) error) func(context.Context) error {
		return func(ctx context.Context) error {
			s, err := b.shardServer(c, store)
			if err != nil {
				return err
			}
			return do(ctx, s)
		}
	}
	database = c.ID + "/database"
	last := c.Postgres.Name
	steps = []step{up(c.Redis.Name), {c.Postgres.Name, nil, server(c.Postgres, b.startPostgres)}}
	if r := c.Replicas; r != nil {
		steps = append(steps, up(r.Redis.Name, c.Redis.Name))
		for _, s := range r.Sentinels {
			steps = append(steps, up(s.Name, r.Redis.Name))
		}
		last = r.Postgres.Name
		steps = append(steps, step{last, []string{c.Postgres.Name}, server(r.Postgres, func(ctx context.Context, s shardServer) error {
			primary, err := b.shardServer(c, c.Postgres)
			if err != nil {
				return err
			}
			return b.startStandby(ctx, s, primary)
		})})
	}
	return append(steps, step{database, []string{last}, server(c.Postgres, func(ctx context.Context, s shardServer) error {
		return createDatabase(ctx, b.adminDSN(s))
	})}), database
}

// startUntilReady starts a process and waits until it serves.
func (b *boot) startUntilReady(ctx context.Context, name string) error {
	if err := b.super.Start(name); err != nil {
		return err
	}
	return b.super.WaitReady(ctx, name)
}
