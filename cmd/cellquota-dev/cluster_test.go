package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/cellquota/cellquota/deploy/local/platform"
	"github.com/cellquota/cellquota/internal/testkit"
)

// Three members and three replicas, each a process of its own: any one may be
// killed, and what is written meanwhile is there when it comes back.
func TestThreeMembersAndThreeReplicas(t *testing.T) {
	dir := t.TempDir()
	args := []string{"--control-planes", "3", "--etcd", "cluster3", "--restart", "--set", "etcd.quota-backend-bytes=67108864"}
	r := start(t, dir, args...)
	e := r.ready()
	if len(e.Etcd.Endpoints) != 3 || len(e.Etcd.PIDs) != 3 || len(e.ControlPlanes) != 3 {
		t.Fatalf("endpoints: %+v, %+v", e.Etcd, e.ControlPlanes)
	}
	for _, c := range e.ControlPlanes {
		ok(t, c.Metrics+"/readyz")
	}
	ctx := testkit.Deadline(t)
	client := etcdClient(t, e)

	// One member is down; the others take writes.
	if _, err := r.client.Kill(ctx, "etcd-2", platform.KILL); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, stopWait, func() error { // the killed one may have led
		_, err := client.Put(ctx, "while-etcd-2-was-down", "yes")
		return err
	})
	if p := r.process("etcd-2"); p.State != platform.StateHeld {
		t.Errorf("etcd-2 is %s", p.State)
	}
	if _, err := r.client.Start(ctx, "etcd-2"); err != nil {
		t.Fatal(err)
	}
	r.reaches("etcd-2", platform.StateReady)

	// What dies by itself comes back, a member as well as a replica.
	for _, name := range []string{"etcd-3", "controlplane-2"} {
		before := r.process(name)
		if err := syscall.Kill(before.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, stopWait, func() error {
			if now := r.process(name); now.Starts != before.Starts+1 || now.State != platform.StateReady {
				return fmt.Errorf("%s is %s, started %d times", name, now.State, now.Starts)
			}
			return nil
		})
	}
	r.signal(syscall.SIGTERM)
	if code := r.wait(); code != 0 {
		t.Errorf("SIGTERM: exit code %d, want 0", code)
	}
	nothingLeft(t, dir)

	// The other kind of etcd is refused: the records are in this one.
	other := start(t, dir)
	if code := other.wait(); code != exitUsage || !strings.Contains(other.out.String(), "made with the other kind") {
		t.Errorf("--etcd single on a cluster's directory: exit %d, %s", code, other.out.String())
	}
	again := start(t, dir, args...)
	if now := again.ready(); withoutPIDs(t, now) != withoutPIDs(t, e) {
		t.Error("addresses or secrets changed")
	}
	if got, err := etcdClient(t, e).Get(ctx, "while-etcd-2-was-down"); err != nil || got.Count != 1 {
		t.Errorf("the cluster lost its key: %v %v", got, err)
	}
}

// A cluster whose very first start is cut off begins again: a member that had
// voted and lost its log is never let back in.
func TestAClustersFirstStartMayBeCutOff(t *testing.T) {
	dir := t.TempDir()
	r := start(t, dir, "--etcd", "cluster3")
	testkit.Eventually(t, bootWait, func() error {
		_, err := os.Stat(dir + "/data/etcd-3/member/wal")
		return err
	})
	r.signal(syscall.SIGKILL)
	<-r.done
	nothingLeft(t, dir)
	if _, err := os.Stat(dir + "/data/etcd-cluster.made"); !errors.Is(err, os.ErrNotExist) {
		t.Log("the cluster was ready before it was cut off: an ordinary restart")
	}
	start(t, dir, "--etcd", "cluster3").ready()
}
