// Package kafkaserver runs the local platform's embedded Kafka: kfake, one
// broker that speaks the real protocol and keeps its records on disk.
//
// Job: a log that a fresh machine can run without Java, in a process of its
// own.
//
// Promise: a record is on disk before it is acknowledged, and topics, records
// and committed offsets survive any end of the process. What it is not: it has
// no replication and no throttling; questions about those need Apache Kafka.
// Topics are made only by those who ask for them.
//
// Neighbours: `cellquota-dev kafka` is its only caller. Beside tests nothing
// else imports kfake.
package kafkaserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"

	"github.com/twmb/franz-go/pkg/kfake"
)

// Config is one broker that is a cluster of its own.
type Config struct {
	DataDir   string
	Addr      string // 127.0.0.1:port; the broker listens on no other host
	ClusterID string
	// BrokerConfigs are Kafka's broker settings, such as message.max.bytes. Of
	// advertised.listeners, PLAINTEXT://host:port, clients are told the address: a
	// wire before the broker, as with Apache Kafka.
	BrokerConfigs map[string]string
	// CertFile, KeyFile and CAFile encrypt; callers must show a certificate of these
	// authorities. "": plain text.
	CertFile, KeyFile, CAFile string
	// Log receives the broker's warnings.
	Log io.Writer
}

// tls is the option that encrypts, or one that does nothing.
func (c Config) tls() (kfake.Opt, error) {
	if c.CertFile == "" {
		return kfake.NumBrokers(1), nil
	}
	pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	text, err := os.ReadFile(c.CAFile)
	if err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("kafka: %s holds no certificate", c.CAFile)
	}
	return kfake.TLS(&tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert}), nil
}

// Run serves until ctx ends.
func Run(ctx context.Context, c Config) error {
	host, portText, err := net.SplitHostPort(c.Addr)
	if err != nil {
		return fmt.Errorf("kafka address: %w", err)
	}
	port, err := strconv.Atoi(portText)
	if err != nil || host != "127.0.0.1" {
		return fmt.Errorf("kafka address %q is not of the form 127.0.0.1:port", c.Addr)
	}
	listen, err := listener(c.BrokerConfigs[advertisedListeners])
	if err != nil {
		return err
	}
	identity, err := c.tls()
	if err != nil {
		return err
	}
	cluster, err := kfake.NewCluster(
		identity,
		kfake.ListenFn(listen),
		kfake.NumBrokers(1),
		kfake.Ports(port),
		kfake.ClusterID(c.ClusterID),
		kfake.DataDir(c.DataDir),
		kfake.SyncWrites(),
		kfake.DefaultNumPartitions(1),
		kfake.BrokerConfigs(c.BrokerConfigs),
		kfake.WithLogger(kfake.BasicLogger(c.Log, kfake.LogLevelWarn)),
	)
	if err != nil {
		return fmt.Errorf("kafka: %w", err)
	}
	defer cluster.Close()
	<-ctx.Done()
	return nil
}
