package relay_test

import (
	"testing"

	"github.com/cellquota/cellquota/cell/relay"
	"github.com/cellquota/cellquota/internal/testkit"
)

// TestK52K70NoConsumerGroup: what a dead or restarted relay leaves cannot be an entry that somebody once
// read and never acknowledged, nor a consumer that nobody is: the stream has no group. It is the recovery
// record itself, and an entry leaves it by XDEL alone.
func TestK52K70NoConsumerGroup(t *testing.T) {
	r := newRig(t, relay.Config{})
	client := r.redis.Client(t)
	ctx := testkit.Deadline(t)
	list := r.admit(t, "u", 10)
	if err := client.XDel(ctx, "cq:{sale:phone}:1.1:stream", list[0].StreamID).Err(); err != nil { // deleted under a sweeper's feet
		t.Fatal(err)
	}
	for range 2 { // the second relay is another process after a kill
		if err := r.sweeper.Sweep(ctx, scope, 0); err != nil {
			t.Fatal(err)
		}
	}
	keys, err := client.Keys(ctx, "*:stream").Result()
	if err != nil || len(keys) != 1 {
		t.Fatalf("streams %v, %v", keys, err)
	}
	groups, err := client.XInfoGroups(ctx, keys[0]).Result()
	if err != nil || len(groups) != 0 {
		t.Errorf("groups %v, %v", groups, err)
	}
	if n := r.consume(t, idsOf(list[1:])); n != 9 {
		t.Errorf("%d records of the nine entries that were left", n)
	}
	if n := r.streamLength(t); n != 0 {
		t.Errorf("%d entries left", n)
	}
}
