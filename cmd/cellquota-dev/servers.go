package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/cellquota/cellquota/cmd/cellquota-dev/internal/apachekafka"
	"github.com/cellquota/cellquota/cmd/cellquota-dev/internal/etcdserver"
	"github.com/cellquota/cellquota/cmd/cellquota-dev/internal/kafkaserver"
)

// historyKept is how long etcd keeps old revisions: long enough to look back
// over a day's experiments, short enough for a platform that runs for weeks.
const historyKept = "24h"

func etcdCommand() *cobra.Command {
	c := etcdserver.Config{}
	cmd := &cobra.Command{
		Use:   "etcd",
		Short: "Run one etcd member of the platform (up does this)",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return etcdserver.Run(cmd.Context(), c) },
	}
	f := cmd.Flags()
	f.StringVar(&c.Name, "name", "etcd", "the member's name")
	f.StringVar(&c.DataDir, "data-dir", "", "where it keeps its data")
	f.StringVar(&c.ClientAddr, "client-addr", "", "host:port for clients")
	f.StringVar(&c.PeerAddr, "peer-addr", "", "host:port for peers")
	f.StringToStringVar(&c.Members, "member", nil, "a member of the cluster, name=host:port of its peers; once for each")
	f.StringVar(&c.ClusterToken, "cluster-token", "", "makes the cluster's id at the first start")
	f.StringVar(&c.AutoCompaction, "auto-compaction", historyKept, "how long history is kept, a duration of at least 1s; 0 keeps all of it")
	f.Int64Var(&c.QuotaBytes, "quota-backend-bytes", 2<<30, "bound of the data; at it etcd raises NOSPACE and refuses writes")
	f.StringVar(&c.LogLevel, "log-level", "warn", "debug, info, warn or error")
	f.StringVar(&c.CertFile, "cert-file", "", "certificate, PEM; empty: plain text")
	f.StringVar(&c.KeyFile, "key-file", "", "its private key, PEM")
	f.StringVar(&c.CAFile, "ca-file", "", "authorities of those who call, who must then show a certificate, PEM")
	require(cmd, "data-dir", "client-addr", "peer-addr", "cluster-token")
	return cmd
}

func kafkaCommand() *cobra.Command {
	c := kafkaserver.Config{Log: os.Stderr}
	cmd := &cobra.Command{
		Use:   "kafka",
		Short: "Run the platform's embedded Kafka (up does this)",
		Long:  "Runs kfake: the real protocol with one broker, records on disk before they are\nacknowledged, but neither replication nor throttling.",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return kafkaserver.Run(cmd.Context(), c) },
	}
	f := cmd.Flags()
	f.StringVar(&c.DataDir, "data-dir", "", "where it keeps its data")
	f.StringVar(&c.Addr, "addr", "", "127.0.0.1:port to listen on")
	f.StringVar(&c.ClusterID, "cluster-id", "", "the cluster's id")
	f.StringToStringVar(&c.BrokerConfigs, "broker-config", nil, "a broker setting, key=value; may be repeated")
	f.StringVar(&c.CertFile, "cert-file", "", "certificate, PEM; empty: plain text")
	f.StringVar(&c.KeyFile, "key-file", "", "its private key, PEM")
	f.StringVar(&c.CAFile, "ca-file", "", "authorities of those who call, who must then show a certificate, PEM")
	require(cmd, "data-dir", "addr", "cluster-id")
	return cmd
}

func apacheKafkaCommand() *cobra.Command {
	c := apachekafka.Config{Log: os.Stderr}
	cmd := &cobra.Command{
		Use:   "apache-kafka",
		Short: "Become the platform's Apache Kafka broker (up --kafka apache does this)",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return apachekafka.Run(cmd.Context(), c) },
	}
	f := cmd.Flags()
	f.StringVar(&c.DataDir, "data-dir", "", "where it keeps its data")
	f.StringVar(&c.Addr, "addr", "", "127.0.0.1:port for clients")
	f.StringVar(&c.ControllerAddr, "controller-addr", "", "127.0.0.1:port of its controller")
	f.StringVar(&c.ClusterID, "cluster-id", "", "the cluster's id, 22 characters")
	f.StringVar(&c.Java, "java", "java", "the Java program, 17 or newer")
	f.StringVar(&c.Jars, "jars", "", "folder of the broker's jars")
	f.StringToStringVar(&c.BrokerConfigs, "broker-config", nil, "a broker setting, key=value; may be repeated")
	require(cmd, "data-dir", "addr", "controller-addr", "cluster-id", "jars")
	return cmd
}

// require marks flags that must be given.
func require(cmd *cobra.Command, names ...string) {
	for _, name := range names {
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic(err) // a name that was just defined
		}
	}
}

func noArgs(cmd *cobra.Command, args []string) error {
	if err := cobra.NoArgs(cmd, args); err != nil {
		return usageError{err}
	}
	return nil
}
