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
	dir := b.plan.StoreDir(c.Redis.Name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	shard, err := b.shardServer(c)
	if err != nil {
		return err
	}
	errs := []error{
		b.super.Add(supervise.Spec{
			Name: c.Redis.Name, Path: b.programs.Redis, Env: b.env,
			Args:  []string{"redis-server", b.plan.RedisConfig(c)},
			Log:   b.plan.Log(c.Redis.Name),
			Probe: b.redisProbe(c.Redis.Addr), Tier: tierStores,
		}),
		b.super.Add(b.postgresSpec(shard)),
	}
	for _, s := range c.Processes {
		errs = append(errs, b.super.Add(b.serverSpec(s, tierCells)))
	}
	return errors.Join(errs...)
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
	needs := append([]string{schema, c.Redis.Name, b.plan.Kafka.Name}, controlPlanes...)
	steps := []step{
		up(c.Redis.Name),
		{c.Postgres.Name, nil, func(ctx context.Context) error {
			shard, err := b.shardServer(c)
			if err != nil {
				return err
			}
			return b.startPostgres(ctx, shard)
		}},
		{schema, []string{c.Postgres.Name}, func(ctx context.Context) error { return b.migrate(ctx, c) }},
		{provision, needs, func(ctx context.Context) error { return b.provision(ctx, c) }},
	}
	for _, s := range c.Processes {
		steps = append(steps, up(s.Name, provision))
	}
	return steps
}

// startUntilReady starts a process and waits until it serves.
func (b *boot) startUntilReady(ctx context.Context, name string) error {
	if err := b.super.Start(name); err != nil {
		return err
	}
	return b.super.WaitReady(ctx, name)
}
