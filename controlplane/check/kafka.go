package check

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/topics"
	"github.com/cellquota/cellquota/internal/kafka"
)

const (
	// minMessage is the largest batch of the cells' producers; a smaller
	// max.message.bytes refuses it.
	minMessage = 1_000_012
	// brokersAtOnce bounds the brokers that are asked at the same time.
	brokersAtOnce = 4
)

// kafka looks at the brokers, the cell's topic and the topic of events.
func (c Checker) kafka(ctx context.Context, s Subject, p *part) {
	access, ok := c.access(ctx, s.Spec.Kafka, p)
	if !ok || !c.brokers(ctx, s.Spec.Kafka.Brokers, access, p) {
		return
	}
	client, err := kafka.New(s.Spec.Kafka.Brokers, append(slices.Clip(access), kgo.ClientID("cellquota-check"))...)
	if err != nil {
		p.silent("kafka.brokers", err)
		return
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	found, err := admin.Metadata(ctx, s.Spec.Kafka.Topic, topics.Events)
	if err != nil {
		p.silent("kafka", err)
		return
	}
	fresh := s.Cell == nil || s.Cell.State == core.CellProvisioned
	for _, topic := range []string{s.Spec.Kafka.Topic, topics.Events} {
		detail := found.Topics[topic]
		switch {
		case errors.Is(detail.Err, kerr.UnknownTopicOrPartition) || !found.Topics.Has(topic):
			p.saw("topic "+topic, "does not exist", fresh, "must exist; cells create no topic: create it, or provision the cell again")
		case detail.Err != nil:
			p.silent("topic "+topic, detail.Err)
		default:
			c.topic(ctx, admin, s.Spec.Kafka, detail, p)
		}
	}
}

// brokers asks each named broker; true: at least one answers.
func (c Checker) brokers(ctx context.Context, addrs []string, access []kgo.Opt, p *part) bool {
	errs := make([]error, len(addrs))
	var all errgroup.Group
	all.SetLimit(brokersAtOnce)
	var mu sync.Mutex
	answers := false
	for i, addr := range addrs {
		all.Go(func() error {
			client, err := kafka.New([]string{addr}, append(slices.Clip(access), kgo.ClientID("cellquota-check"), kgo.RequestRetries(0), kgo.RetryTimeout(c.cfg.Timeout/2))...)
			if err == nil {
				err = client.Ping(ctx)
				client.Close()
			}
			mu.Lock()
			defer mu.Unlock()
			errs[i] = err
			answers = answers || err == nil
			return nil
		})
	}
	_ = all.Wait()
	for i, addr := range addrs {
		if errs[i] != nil {
			p.silent("broker "+addr, errs[i])
		} else {
			p.saw("broker "+addr, "answers", true, "")
		}
	}
	return answers
}

// topic looks at one topic. The events topic shares replication and settings, not the
// number of partitions.
func (c Checker) topic(ctx context.Context, admin *kadm.Client, spec core.KafkaSpec, t kadm.TopicDetail, p *part) {
	name := "topic " + t.Topic
	if t.Topic == spec.Topic {
		p.saw(name+" partitions", strconv.Itoa(len(t.Partitions)), len(t.Partitions) == int(spec.Partitions),
			fmt.Sprintf("must be %d, as kafka.partitions says: their number chooses where a SKU's admissions go", spec.Partitions))
	}
	replicas, insync, leaderless := math.MaxInt16, math.MaxInt16, 0
	for _, one := range t.Partitions {
		replicas, insync = min(replicas, len(one.Replicas)), min(insync, len(one.ISR))
		if one.Leader < 0 {
			leaderless++
		}
	}
	p.saw(name+" replication", strconv.Itoa(replicas), replicas >= int(spec.Replication), fmt.Sprintf("must be at least %d, as kafka.replication says", spec.Replication))
	p.saw(name+" leaders", fmt.Sprintf("%d partitions have none", leaderless), leaderless == 0, "every partition must have a leader")
	configs, err := admin.DescribeTopicConfigs(ctx, t.Topic)
	if err == nil && len(configs) == 1 {
		err = configs[0].Err
	}
	if err != nil || len(configs) != 1 {
		p.silent(name+" settings", errors.Join(err, errors.New("settings were not told")))
		return
	}
	set := map[string]string{}
	for _, one := range configs[0].Configs {
		set[one.Key] = one.MaybeValue()
	}
	c.settings(name, spec, set, insync, p)
}

// settings judges what would lose or refuse a record.
func (c Checker) settings(name string, spec core.KafkaSpec, set map[string]string, insync int, p *part) {
	least := int64(spec.Replication/2 + 1)
	need := number(set["min.insync.replicas"])
	p.saw(name+" min.insync.replicas", set["min.insync.replicas"], need >= least && need <= int64(spec.Replication),
		fmt.Sprintf("must be from %d to %d with kafka.replication %d: fewer and one broker's loss loses records, more and nothing is taken", least, spec.Replication, spec.Replication))
	p.saw(name+" in-sync replicas", strconv.Itoa(insync), int64(insync) >= need, "must not be below min.insync.replicas: producing is refused until brokers are back")
	p.saw(name+" cleanup.policy", set["cleanup.policy"], set["cleanup.policy"] == "delete", "must be delete: compaction drops records")
	if most, told := set["max.message.bytes"]; told {
		p.saw(name+" max.message.bytes", most, number(most) >= minMessage, fmt.Sprintf("must be at least %d, the producers' largest batch", minMessage))
	}
	kept := time.Duration(number(set["retention.ms"])) * time.Millisecond
	p.saw(name+" retention.ms", set["retention.ms"], number(set["retention.ms"]) < 0 || kept >= c.cfg.MinRetention,
		fmt.Sprintf("must be -1 or at least %d (check.min_retention): longer than the oldest backup that may be restored", c.cfg.MinRetention.Milliseconds()))
	if bytes, told := set["retention.bytes"]; told {
		p.saw(name+" retention.bytes", bytes, number(bytes) < 0, "must be -1: a busy hour would push out records that are needed still")
	}
}

// number reads a setting; one that cannot be read is 0 and breaks its rule.
func number(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}
