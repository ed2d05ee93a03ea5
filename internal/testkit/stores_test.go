package testkit

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kgo"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestRedisForgetsOnRestart(t *testing.T) {
	t.Parallel()
	s := Redis(t)
	c, ctx := s.Client(t), Deadline(t)
	if err := c.Set(ctx, "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	pid := s.PID()
	s.Restart(t)
	if err := c.Get(ctx, "k").Err(); !errors.Is(err, redis.Nil) || s.PID() == pid {
		t.Fatalf("after a restart: %v, pid %d was %d", err, s.PID(), pid)
	}
}

func TestRedisWithAppendOnlyRemembers(t *testing.T) {
	t.Parallel()
	s := Redis(t, "--appendonly", "yes", "--appendfsync", "always")
	c, ctx := s.Client(t), Deadline(t)
	if err := c.Set(ctx, "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	s.Restart(t)
	if v, err := c.Get(ctx, "k").Result(); err != nil || v != "v" {
		t.Fatalf("after a restart: %q, %v", v, err)
	}
	s.FlushAll(t)
	if n, err := c.DBSize(ctx).Result(); err != nil || n != 0 {
		t.Fatalf("after FLUSHALL: %d keys, %v", n, err)
	}
}

func TestPausedRedisAnswersAfterResume(t *testing.T) {
	t.Parallel()
	s := Redis(t)
	c := redis.NewClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1, ReadTimeout: 100 * time.Millisecond})
	t.Cleanup(func() { _ = c.Close() })
	s.Pause(t)
	if err := c.Ping(Deadline(t)).Err(); err == nil {
		t.Fatal("a paused server answered")
	}
	s.Resume(t)
	Eventually(t, 5*time.Second, func() error { return c.Ping(Deadline(t)).Err() })
}

func TestEtcdMemberComesBackWithItsData(t *testing.T) {
	t.Parallel()
	e := Etcd(t, 1)
	ctx := Deadline(t)
	if _, err := e.Client(t).Put(ctx, "k", "v"); err != nil {
		t.Fatal(err)
	}
	e.Stop(t, 0)
	e.Start(t, 0)
	got, err := e.Client(t).Get(ctx, "k")
	if err != nil || len(got.Kvs) != 1 {
		t.Fatalf("after a restart: %v, %v", got, err)
	}
}

func TestEtcdCompactEndsOldWatches(t *testing.T) {
	t.Parallel()
	e := Etcd(t, 1)
	c, ctx := e.Client(t), Deadline(t)
	for range 5 {
		if _, err := c.Put(ctx, "k", "v"); err != nil {
			t.Fatal(err)
		}
	}
	at := e.Compact(t)
	answer := <-c.Watch(ctx, "k", clientv3.WithRev(at-2))
	if answer.CompactRevision == 0 {
		t.Fatalf("a watch from before revision %d was served: %v", at, answer.Err())
	}
}

func TestEtcdSurvivesItsLeader(t *testing.T) {
	t.Parallel()
	e := Etcd(t, 3)
	c, ctx := e.Client(t), Deadline(t)
	if _, err := c.Put(ctx, "k", "1"); err != nil {
		t.Fatal(err)
	}
	old := e.Leader()
	e.Stop(t, old)
	Eventually(t, 20*time.Second, func() error { _, err := c.Put(ctx, "k", "2"); return err })
	e.Start(t, old)
	if now := e.Leader(); now < 0 || now == old {
		t.Fatalf("leader is %d, was %d", now, old)
	}
}

func TestEtcdGrantsLeasesOfOneSecond(t *testing.T) {
	t.Parallel()
	lease, err := Etcd(t, 1).Client(t).Grant(Deadline(t), 1)
	if err != nil || lease.TTL != 1 {
		t.Fatalf("lease %v, %v; want a TTL of 1 s", lease, err)
	}
}

func TestKafkaKeepsRecordsOverARestart(t *testing.T) {
	t.Parallel()
	k := Kafka(t, 2)
	k.CreateTopic(t, "orders", 3)
	producer := k.Client(t, kgo.DefaultProduceTopic("orders"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err := producer.ProduceSync(Deadline(t), &kgo.Record{Partition: 2, Value: []byte("v")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	addrs := k.Brokers()
	k.Stop(t)
	k.Start(t)
	if got := k.Brokers(); len(got) != 2 || got[0] != addrs[0] || got[1] != addrs[1] {
		t.Fatalf("brokers %v, were %v", got, addrs)
	}
	consumer := k.Client(t, kgo.ConsumeTopics("orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	fetched := consumer.PollFetches(Deadline(t))
	if err := fetched.Err(); err != nil || fetched.NumRecords() != 1 || string(fetched.Records()[0].Value) != "v" {
		t.Fatalf("fetched %v, %v", fetched.Records(), err)
	}
}

func TestKafkaCreatesNoTopicByItself(t *testing.T) {
	t.Parallel()
	k := Kafka(t, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	c := k.Client(t, kgo.UnknownTopicRetries(0))
	if err := c.ProduceSync(ctx, &kgo.Record{Topic: "typo", Value: []byte("v")}).FirstErr(); err == nil {
		t.Fatal("a record went to a topic that nobody made")
	}
}
