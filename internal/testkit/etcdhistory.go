package testkit

import (
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// EtcdChange is one transaction of etcd's history.
type EtcdChange struct {
	Revision int64
	Keys     []string // put or deleted by it, in etcd's order
}

// EtcdHistory gives every transaction below a prefix since etcd was made, in
// order, up to the present revision. It needs a history that was never compacted.
func EtcdHistory(t testing.TB, client *clientv3.Client, prefix string) []EtcdChange {
	t.Helper()
	ctx := Deadline(t)
	now, err := client.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		t.Fatal(err)
	}
	var out []EtcdChange
	watch := client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(1), clientv3.WithProgressNotify())
	if err := client.RequestProgress(ctx); err != nil {
		t.Fatal(err)
	}
	for reached := int64(0); reached < now.Header.Revision; {
		resp, open := <-watch
		if !open || resp.Err() != nil {
			t.Fatalf("history of %s ends at %d: %v", prefix, reached, resp.Err())
		}
		for _, ev := range resp.Events {
			if n := len(out); n == 0 || out[n-1].Revision != ev.Kv.ModRevision {
				out = append(out, EtcdChange{Revision: ev.Kv.ModRevision})
			}
			last := &out[len(out)-1]
			last.Keys = append(last.Keys, string(ev.Kv.Key))
		}
		if reached = resp.Header.Revision; reached < now.Header.Revision && len(resp.Events) == 0 {
			if err := client.RequestProgress(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	return out
}
