package recovery_test

import (
	"testing"
	"time"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/ids"
)

// Handovers that came after the backup keep their route versions: the next one gets a
// version that no shard has seen.
func TestAHandoverThatWasLostKeepsItsVersion(t *testing.T) {
	w := newWorld(t)
	for id, state := range map[ids.CellID]string{"cell-1": "CLOSED", "cell-2": "OPEN"} {
		w.tell(id, 7, "cell-1", "cell-2")
		w.sql(id, "INSERT INTO cellquota.buckets (campaign_id, domain, bucket_from, bucket_to, state, moved_version) VALUES ('c', '', 0, 99, $1, 5), ('c', '', 100, 199, $1, 1)", state)
	}
	w.marked()
	w.recoverTo("op", []core.ConfirmedLimit{{Key: key, SaleLimit: quantity.Must(1_000)}}, done)
	route, _ := w.now().Route("c")
	if home, _ := route.Domains[0].Homes.Home(0); route.Version != 5 || home != "cell-1" {
		t.Errorf("route version %d, bucket 0 is %s's", route.Version, home)
	}
	if _, m, err := route.Order("", "cell-1", "cell-2", 0, 99, time.Now()); err != nil || m.RouteVersion != 6 {
		t.Errorf("the next handover: %+v, %v", m, err)
	}
}
