package main

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/cellquota/cellquota/deploy/local/platform"
	"github.com/cellquota/cellquota/internal/testkit"
)

// up --replicated: what one server of a pair had, the other has when the first is killed. The sentinels
// move Redis by themselves; PostgreSQL is promoted by hand, and then the same addresses lead there.
func TestAReplicatedPlatformOutlivesItsPrimaries(t *testing.T) {
	dir := t.TempDir()
	p := start(t, dir, "--replicated")
	e := p.ready()
	c, r := e.Cells[0], e.Cells[0].Replicas
	if r == nil || len(r.Sentinels) != 3 || len(r.SentinelPIDs) != 3 || r.RedisPID == 0 || r.PostgresPID == 0 {
		t.Fatalf("replicas %+v", r)
	}
	write(t, e)
	awaitReplica(t, r)
	for _, pid := range []int{c.RedisPID, c.PostgresPID} {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	ctx := testkit.Deadline(t)
	standby, err := pgx.Connect(ctx, r.PostgresSuperuser)
	if err != nil {
		t.Fatal(err)
	}
	defer standby.Close(ctx)
	if _, err := standby.Exec(ctx, "SELECT pg_promote()"); err != nil {
		t.Fatal(err)
	}
	awaitPromoted(t, r)
	e.Cells[0].Redis = r.Redis
	checkKept(t, e) // through the DSN that was published before

	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		t.Errorf("SIGTERM: exit code %d", code)
	}
	nothingLeft(t, dir)
	again := start(t, dir, "--replicated")
	if code := again.wait(); code == 0 || !strings.Contains(again.out.String(), "was promoted") {
		t.Errorf("two primaries of one shard were started: exit code %d", code)
	}
}

func awaitReplica(t *testing.T, r *platform.Replicas) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: r.Redis})
	defer client.Close()
	testkit.Eventually(t, bootWait, func() error {
		got, err := client.Get(t.Context(), "kept").Result()
		if err == nil && got != "yes" {
			err = errors.New(got)
		}
		return err
	})
}

// awaitPromoted waits until every sentinel names the replica.
func awaitPromoted(t *testing.T, r *platform.Replicas) {
	t.Helper()
	for _, addr := range r.Sentinels {
		s := redis.NewSentinelClient(&redis.Options{Addr: addr})
		defer s.Close()
		testkit.Eventually(t, bootWait, func() error {
			got, err := s.GetMasterAddrByName(t.Context(), "cellquota").Result()
			if err == nil && net.JoinHostPort(got[0], got[1]) != r.Redis {
				err = fmt.Errorf("%v", got)
			}
			return err
		})
	}
}
