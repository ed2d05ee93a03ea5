package apachekafka

import (
	"bufio"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// brokerProperties renders server.properties, sorted, so that a start with the
// same options writes the same file.
func (c Config) brokerProperties() string {
	set := map[string]string{
		"process.roles": "broker,controller", "node.id": "1",
		"listeners":                           "PLAINTEXT://" + c.Addr + ",CONTROLLER://" + c.ControllerAddr,
		"advertised.listeners":                "PLAINTEXT://" + c.Addr,
		"controller.listener.names":           "CONTROLLER",
		"controller.quorum.bootstrap.servers": c.ControllerAddr,
		"log.dirs":                            c.records(),
		// One broker: Kafka's own topics cannot have more replicas.
		"offsets.topic.replication.factor":                 "1",
		"offsets.topic.num.partitions":                     "1",
		"transaction.state.log.replication.factor":         "1",
		"transaction.state.log.min.isr":                    "1",
		"share.coordinator.state.topic.replication.factor": "1",
		"share.coordinator.state.topic.min.isr":            "1",
		"auto.create.topics.enable":                        "false",
		"group.initial.rebalance.delay.ms":                 "0",
		// A record is on disk before it is acknowledged: with one replica nothing
		// else holds it.
		"log.flush.interval.messages": "1",
	}
	for key, value := range c.BrokerConfigs {
		set[key] = value
	}
	lines := make([]string, 0, len(set))
	for key, value := range set {
		lines = append(lines, key+"="+value)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n") + "\n"
}

// loggingProperties: warnings on stderr, where the supervisor keeps them.
const loggingProperties = `status = error
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = STDERR
appender.stderr.type = Console
appender.stderr.name = STDERR
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{ISO8601} %p %c %m%n
`

// formatted gives the cluster id of the data directory; empty: it has none yet.
func (c Config) formatted() (string, error) {
	f, err := os.Open(filepath.Join(c.records(), "meta.properties"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // read only
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if id, found := strings.CutPrefix(lines.Text(), "cluster.id="); found {
			return strings.TrimSpace(id), nil
		}
	}
	return "", nil
}
