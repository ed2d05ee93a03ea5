package cell

import (
	"fmt"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cellquota/cellquota/cell/shard/migrate"
	"github.com/cellquota/cellquota/internal/testkit"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// TestShardPrimarySwitch: the shard's primary dies in a sale and its synchronous standby is promoted. While
// there is no primary nobody is told "sold out"; then the process finds the new one by the addresses
// that it has, every order that a customer was told of is there, repeats have their answers, the mirror is
// built anew for the other timeline, and nothing is sold twice.
func TestShardPrimarySwitch(t *testing.T) {
	const units = 10
	own := testkit.OwnPostgres(t, map[string]string{"synchronous_commit": "on"})
	w := newWorldOn(t, testkit.Deadline(t), own.PG, testkit.Redis(t))
	standby := own.Standby(t)
	both := func(role string) string {
		return fmt.Sprintf("postgres://%s@%s,%s/%s?sslmode=disable&target_session_attrs=primary", role, own.Addr(), standby.Addr(), w.db.Name)
	}
	w.must(os.WriteFile(w.dsn, []byte(both(migrate.RoleApp)+"\n"), 0o600))
	p := w.sell(units, "--shard-replicated")

	told := map[string]*pb.RequestView{}
	for i := range 4 {
		user := fmt.Sprint("user-", i)
		got := want(t, p.exchange(w.ask(user, "r1"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED).GetRequest()
		told[user] = p.reaches(user, "r1", got.GetReceipt(), pending)
	}
	pay(t, w, p, "user-0", told["user-0"].GetOrderId())
	before, err := p.parts.shard.Identity(w.ctx)
	w.must(err)

	own.Kill(t)
	switch a := p.exchange(w.ask("between", "r1"))[0]; a.GetOutcome() {
	case pb.AdmitOutcome_ADMIT_OUTCOME_TEMP_SOLD_OUT, pb.AdmitOutcome_ADMIT_OUTCOME_FINAL_SOLD_OUT:
		t.Fatalf("without a shard: %v", a)
	}
	standby.Promote(t)
	w.admin, err = pgx.Connect(w.ctx, both("postgres"))
	w.must(err)
	t.Cleanup(func() { _ = w.admin.Close(t.Context()) })

	p.sellsAgain("between")
	p.reaches("between", "r1", "", pending)
	after, err := p.parts.shard.Identity(w.ctx)
	w.must(err)
	if before == after {
		t.Fatalf("still on %s", before)
	}
	for user, view := range told {
		now := p.reaches(user, "r1", "", pending, paid)
		if now.GetOrderId() != view.GetOrderId() || (now.GetState() == paid) != (user == "user-0") {
			t.Fatalf("%s: %v, was %v", user, now, view)
		}
	}
	testkit.Eventually(t, patience, func() error { // until the mirror of the old timeline is replaced
		a := p.exchange(w.ask("user-1", "r1"))[0]
		if a.GetOutcome() == pb.AdmitOutcome_ADMIT_OUTCOME_REPLAYED && a.GetRequest().GetReservationId() == told["user-1"].GetReservationId() {
			return nil
		}
		return fmt.Errorf("replayed as %v", a)
	})
	if n := w.count("SELECT count(*) FROM cellquota.orders"); n != 5 {
		t.Fatalf("%d orders, want 5", n)
	}
	if n := w.count("SELECT available FROM cellquota.stock WHERE sku_id = $1", phone); n != units-5 {
		t.Fatalf("%d available", n)
	}
	p.stocked(units - 5)
}
