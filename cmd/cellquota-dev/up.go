package main

import (
	"errors"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cellquota/cellquota/deploy/local/boot"
	"github.com/cellquota/cellquota/deploy/local/layout"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/telemetry"
)

const upLong = `Starts etcd, Kafka, and per cell one redis-server, one PostgreSQL server and the
cell; the control plane and the edges; provisions cell-1 to cell-N; and keeps
running until Ctrl-C or SIGTERM. Nothing survives it, however it ends.

--replicated gives each cell's Redis a replica and three sentinels, which move to
it by themselves, and its PostgreSQL a synchronous standby, which is promoted by
hand (SELECT pg_promote()); a promoted data directory does not start again.

When everything is ready, the data directory has endpoints.json (mode 0600),
through which cellctl finds the platform (--endpoints-file, CELLQUOTA_ENDPOINTS).
A data directory may be started again; its ports, secrets and data stay.

CELLQUOTA_… variables reach every process. --set adds one configuration key to a
component: cell.orders.batch_max=100 for all cells, cell-2.gate.min_rate=50 for
one, redis.maxmemory=64mb, postgres.synchronous_commit=off. A proxy of your own
stands before a neighbour by the same keys: cell-1.redis.addrs=[127.0.0.1:7001],
cell-1.shard.dsn_file=…, cell-1.control_plane.addrs=[…], cell-1.advertise_addr=…
(before the cell), kafka.advertised.listeners=PLAINTEXT://127.0.0.1:7002.

etcd.auto-compaction (24h) is how long etcd keeps its history,
etcd.quota-backend-bytes (2 GiB) how much it may hold before it refuses writes.

With --tls every listener speaks TLS alone, customers' HTTP and metrics too, etcd and
Redis ask their callers for a certificate, PostgreSQL for verify-full; each start makes
the authority and all certificates anew. endpoints.json names the files.

With --control-planes 3 and --etcd cluster3 any one replica and any one member
may die or freeze (cellctl dev kill controlplane-2, dev kill etcd-2, dev start
etcd-2) and the platform goes on; a data directory keeps the kind of etcd that
it was made with.`

const upExample = `  cellquota-dev up --data-dir .dev --cells 4
  cellquota-dev up --data-dir .dev --cells 4 --regions east,west --edges 2 --restart
  cellquota-dev up --data-dir .dev --cells 2 --control-planes 3 --etcd cluster3 --restart
  cellquota-dev up --data-dir .dev --cells 2 --processes 2 --set cell.orders.batch_wait=5ms`

func upCommand() *cobra.Command {
	o := layout.Defaults()
	var binDir, level string
	cmd := &cobra.Command{
		Use: "up", Short: "Run a local platform until Ctrl-C", Long: upLong, Example: upExample,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var lv slog.LevelVar
			parsed, err := telemetry.ParseLevel(level)
			if err != nil {
				return usageError{err}
			}
			lv.Set(parsed)
			if err := o.Check(); err != nil {
				return err
			}
			programs, err := layout.FindPrograms(binDir, o.Kafka, o.Replicated)
			if err != nil {
				return err
			}
			log := telemetry.NewLogger(cmd.ErrOrStderr(), "cellquota-dev", &lv)
			return boot.Run(cmd.Context(), log, clock.System(), o, programs, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.DataDir, "data-dir", "", "where the platform keeps everything; required")
	f.IntVar(&o.Cells, "cells", o.Cells, "cells, named cell-1 to cell-N")
	f.StringSliceVar(&o.Regions, "regions", o.Regions, "regions, dealt to the cells in turn")
	f.StringVar(&o.Kafka, "kafka", o.Kafka, "embedded, or apache: a real broker, in KRaft mode (deploy/local/setup kafka brings it)")
	f.IntVar(&o.ControlPlanes, "control-planes", o.ControlPlanes, "control-plane replicas: 1 or 3")
	f.StringVar(&o.Etcd, "etcd", o.Etcd, "single, or cluster3: three members")
	f.IntVar(&o.Edges, "edges", o.Edges, "edge processes")
	f.IntVar(&o.Processes, "processes", o.Processes, "processes per cell, or with --split-roles per role of a cell")
	f.BoolVar(&o.SplitRoles, "split-roles", false, "give each role of a cell a process of its own: "+strings.Join(layout.Roles, ", "))
	f.BoolVar(&o.Replicated, "replicated", false, "Redis with a replica and sentinels, PostgreSQL with a synchronous standby")
	f.BoolVar(&o.TLS, "tls", false, "encrypt every connection, by an authority made at the start (DATA-DIR/tls), and run the servers without dev")
	f.BoolVar(&o.Restart, "restart", false, "start again what ends by itself, with back-off")
	f.StringArrayVar(&o.Set, "set", nil, "component.key=value; may be repeated")
	f.StringVar(&binDir, "bin-dir", "", "where cellquotad and cellctl are (default: beside this program)")
	f.StringVar(&level, "log-level", "info", "debug, info, warn or error")
	return cmd
}

// usageError is a command line that makes no sense.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func exitCode(err error) int {
	var usage usageError
	if errors.As(err, &usage) || errors.Is(err, layout.ErrOption) || errors.Is(err, layout.ErrUnsupported) {
		return exitUsage
	}
	return exitUnexpected
}
