// Package topics creates the cells' Kafka topics. Cells never create them: the
// replication of what carries accepted requests is an operator's decision.
//
// Neighbours: intent asks for a topic when it provisions a cell.
package topics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/kafka"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/transport"
)

// Kafka ensures topics by a short-lived client for each cell's own brokers.
type Kafka struct {
	// Log receives what is said of certificate files; nil: nobody.
	Log *slog.Logger
}

// Access is how a cell's brokers are reached, by the files that its spec names. Errors
// name the key.
func Access(spec core.KafkaSpec, log *slog.Logger) ([]kgo.Opt, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	access := kafka.Access{Mechanism: spec.SASL.Mechanism, User: spec.SASL.User, PasswordFile: spec.SASL.PasswordFile}
	if spec.TLS.Enabled() {
		identity, err := transport.LoadTLS(transport.TLSFiles{
			CAFile: spec.TLS.CAFile, CertFile: spec.TLS.CertFile, KeyFile: spec.TLS.KeyFile, ServerName: spec.TLS.ServerName,
		}, log)
		if err != nil {
			return nil, fmt.Errorf("kafka.tls: %w", err)
		}
		access.TLS = identity
	}
	return access.Options()
}

// Events is the topic to which every cell's outbox publishes what became of
// orders (contract, section 6). The first cell provisioned on its brokers makes
// it; eventPartitions is how many consumers can then share it.
const (
	Events          = "cellquota.events"
	eventPartitions = 8
)

// Ensure creates the cell's topic, or finds it with the partitions asked for,
// and then the events topic, with whatever partitions it has. Records are never
// deleted by compaction, and a broker must have them on min.insync.replicas
// before it acknowledges. Errors: rpcstatus.ErrUnavailable when no broker
// answers; ErrFailedPrecondition when the topic is there with other partitions,
// or the brokers refuse it.
func (k Kafka) Ensure(ctx context.Context, spec core.KafkaSpec) error {
	access, err := Access(spec, k.Log)
	if err != nil {
		return fmt.Errorf("%w: %v", rpcstatus.ErrFailedPrecondition, err) //nolint:errorlint // errors of files end here
	}
	client, err := kafka.New(spec.Brokers, append(access, kgo.ClientID("cellquota-controlplane"))...)
	if err != nil {
		return fmt.Errorf("%w: %v", rpcstatus.ErrFailedPrecondition, err) //nolint:errorlint // driver errors end here
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	existed, err := create(ctx, admin, spec, spec.Topic, spec.Partitions)
	if err == nil && existed {
		err = found(ctx, admin, spec)
	}
	if err != nil {
		return err
	}
	_, err = create(ctx, admin, spec, Events, eventPartitions)
	return err
}

// create makes a topic; existed tells that it was there already.
func create(ctx context.Context, admin *kadm.Client, spec core.KafkaSpec, topic string, partitions int32) (existed bool, err error) {
	_, err = admin.CreateTopic(ctx, partitions, int16(spec.Replication), settings(spec), topic)
	switch {
	case err == nil:
		return false, nil
	case errors.Is(err, kerr.TopicAlreadyExists):
		return true, nil
	case refused(err):
		return false, fmt.Errorf("%w: topic %s: %v", rpcstatus.ErrFailedPrecondition, topic, err) //nolint:errorlint // driver errors end here
	default:
		return false, fmt.Errorf("%w: topic %s: %v", rpcstatus.ErrUnavailable, topic, err) //nolint:errorlint // driver errors end here
	}
}

// settings of a topic: a majority of the replicas must have a record.
func settings(spec core.KafkaSpec) map[string]*string {
	insync := fmt.Sprint(spec.Replication/2 + 1)
	policy := "delete"
	return map[string]*string{"min.insync.replicas": &insync, "cleanup.policy": &policy}
}

func found(ctx context.Context, admin *kadm.Client, spec core.KafkaSpec) error {
	topics, err := admin.ListTopics(ctx, spec.Topic)
	if err != nil {
		return fmt.Errorf("%w: topic %s: %v", rpcstatus.ErrUnavailable, spec.Topic, err) //nolint:errorlint // driver errors end here
	}
	if n := len(topics[spec.Topic].Partitions); n != int(spec.Partitions) {
		return fmt.Errorf("%w: topic %s is there with %d partitions, the cell has %d", rpcstatus.ErrFailedPrecondition, spec.Topic, n, spec.Partitions)
	}
	return nil
}

// refused: the brokers answered, and the answer is no.
func refused(err error) bool {
	for _, e := range []error{kerr.InvalidReplicationFactor, kerr.InvalidPartitions, kerr.InvalidTopicException, kerr.PolicyViolation, kerr.TopicAuthorizationFailed, kerr.ClusterAuthorizationFailed, kerr.InvalidConfig} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
