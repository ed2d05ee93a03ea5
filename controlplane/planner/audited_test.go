package planner_test

import (
	"strings"
	"testing"
	"time"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/intent"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/testkit"
)

// K31: everything that changed what is sold, by whom or where, left a record with
// an operator and a reason in the very transaction that changed it: provision,
// draft, publish, first grants and their answers, top-up, a second campaign that
// does not fit, abort, expiry, close. Steps of a running operation alone are its
// own record.
func TestEveryChangeIsAudited(t *testing.T) {
	r := newRig(t)
	r.provision(2)
	r.lead()
	r.link("cell-1")
	r.link("cell-2")
	r.draft("c", 2, "s")
	r.publish("c", "op")
	r.until("op", core.OperationDone)
	r.topUp("more", "cell-1", 10)
	r.settled("more")
	r.draft("d", 2, "s2")
	r.stopLead()
	r.publish("d", "taken-back")
	if _, err := r.intent.AbortOperation(testkit.Deadline(t), who, "taken-back", "wrong"); err != nil {
		t.Fatal(err)
	}
	r.lead()
	r.ask("late", time.Millisecond)
	r.until("late", core.OperationAborted)
	if _, err := r.intent.CloseCampaign(testkit.Deadline(t), who, intent.Change{Campaign: "c", OperationID: "close", Reason: "over"}); err != nil {
		t.Fatal(err)
	}
	rooms := []string{"cells", "campaigns", "routes", "books", "journal", "stock", "approvals", "tokens", "keys", "proofs"}
	seen := map[string]int{}
	for _, change := range testkit.EtcdHistory(t, r.etcd.Client(t), "/cellquota/") {
		if strings.HasPrefix(change.Keys[0], "/cellquota/approvals/late") || strings.HasPrefix(change.Keys[0], "/cellquota/operations/late") {
			continue // the test's own hand
		}
		audited, changed := false, ""
		for _, key := range change.Keys {
			room, _, _ := strings.Cut(strings.TrimPrefix(key, "/cellquota/"), "/")
			audited = audited || room == "audit"
			for _, watched := range rooms {
				if room == watched {
					changed = key
					seen[room]++
				}
			}
		}
		if changed != "" && !audited {
			t.Errorf("revision %d changed %v without an audit record", change.Revision, change.Keys)
		}
	}
	for _, room := range []string{"cells", "campaigns", "routes", "books", "journal", "stock"} {
		if seen[room] == 0 {
			t.Errorf("nothing changed under %s: the test sees nothing", room)
		}
	}
	trail, err := r.store.TrailBefore(testkit.Deadline(t), store.KindAudit, "", 1_000)
	if err != nil || len(trail) < 10 {
		t.Fatalf("%d records, %v", len(trail), err)
	}
	for _, record := range trail {
		if a := record.Audit; a.Actor == "" || a.Method == "" || a.Subject == "" || a.Reason == "" {
			t.Errorf("a record without actor, method, subject or reason: %+v", a)
		}
	}
}
