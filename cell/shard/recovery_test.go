package shard_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/testkit"
)

// recover raises the shard as the fencer does, with what was seen of it before.
func (p *past) recoverBegin(version int64, upto int64) {
	p.t.Helper()
	positions, err := json.Marshal([]map[string]any{{"topic": topic, "partition": 0, "topic_id": topicID, "next_offset": upto}})
	p.must(err)
	builds, err := json.Marshal([]map[string]any{{"campaign_id": campaign, "scope": phone, "fence_version": p.build.Fence, "count": p.build.Count}})
	p.must(err)
	p.sql("SELECT cellquota.recover_begin($1, $2, $3, 1, $4, '[]', $5, 'test', 1000)", string(cellID), version, group, string(positions), string(builds))
}

func (p *past) sql(query string, args ...any) {
	p.t.Helper()
	if _, err := p.admin.Exec(p.ctx, query, args...); err != nil {
		p.t.Fatalf("%s: %v", query, err)
	}
}

// trusted is the process after the control plane took it in again.
func (p *past) trusted(version int64) {
	p.t.Helper()
	testkit.Eventually(p.t, patience, func() error {
		seen, err := p.store.Observe(p.ctx)
		if err == nil && !p.store.Trust(seen) {
			err = errors.New("not trusted yet")
		}
		return err
	})
	p.store.SetWriter(shard.Writer{FenceVersion: version, Group: group})
}

// facts are the orders as a customer knows them: id, user, state.
func (p *past) orders() []string {
	p.t.Helper()
	rows, err := p.admin.Query(p.ctx, "SELECT order_id || ' ' || user_id FROM cellquota.orders ORDER BY 1")
	p.must(err)
	out, err := pgx.CollectRows(rows, pgx.RowTo[string])
	p.must(err)
	return out
}

// TestTheLogReadAgainMakesTheSameOrders: whatever way the shard went back, the partition is consumed again
// while it settles only, the same orders come by the same ids, nothing is sold twice, and payments wait.
func TestTheLogReadAgainMakesTheSameOrders(t *testing.T) {
	ways := map[string]func(p *past) (goBack func()){
		"backup": func(p *past) func() {
			backup := p.own.Backup(p.t)
			return func() { backup.Restore(p.t) }
		},
		"stale standby": func(p *past) func() {
			standby := p.own.AsyncStandby(p.t)
			standby.Detach(p.t)
			return func() {
				standby.TakeOver(p.t, p.own)
				p.wire.Lead(standby.Addr())
				p.db = standby.Existing(p.db.Name)
			}
		},
		"empty directory": func(p *past) func() {
			return func() {
				p.own.Empty(p.t)
				p.own.Create(p.t, p.db.Name, testkit.Template{Name: "bare", Setup: bare})
			}
		},
	}
	for name, prepare := range ways {
		t.Run(name, func(t *testing.T) {
			p := newPast(t)
			var log []shard.Message
			sell := func(user string) {
				m := p.message(user)
				log = append(log, m)
				p.apply(m)
			}
			for i := range 6 {
				sell(fmt.Sprintf("early-%d", i))
			}
			goBack := prepare(p)
			for i := range 9 {
				sell(fmt.Sprintf("late-%d", i))
			}
			before := p.orders()
			goBack()
			p.admin = p.db.Conn(t)
			p.recoverBegin(2, p.next)
			p.trusted(2)
			r := rules(phone)
			p.install(r)
			if missing := one[int](p.bench, "SELECT cellquota.recover_adjustment($1, 2, 'adj-phone-x-1-1', $2, $3, 1, 1, 'GRANT', 20, 'APPLIED')", string(cellID), string(campaign), string(phone)); missing != 0 {
				t.Fatalf("%d units are missing for a grant", missing)
			}
			p.must(p.store.StartPosition(p.ctx, shard.Position{Topic: topic, TopicID: topicID, Epoch: -1}))
			from := one[int64](p.bench, "SELECT next_offset FROM cellquota.positions")
			again := log[from:]
			if _, err := p.store.ApplyOrders(p.ctx, p.batch(again...)); !errors.Is(err, shard.ErrState) {
				t.Errorf("before the adjustments stand: %v", err)
			}
			p.sql("SELECT cellquota.recover_messages($1, 2)", string(cellID))
			if _, err := p.store.ApplyOrders(p.ctx, p.batch(again...)); err != nil {
				t.Fatal(err)
			}
			if got := p.orders(); !slices.Equal(got, before) {
				t.Errorf("orders %v, before %v", got, before)
			}
			p.invariants()
			p.afterwards(t, log)
		})
	}
}

// afterwards: what is new waits for ACTIVE, payments wait for the end, and every order that was made again
// has an attempt to be asked about.
func (p *past) afterwards(t *testing.T, log []shard.Message) {
	t.Helper()
	fresh := p.message("new")
	if _, err := p.store.ApplyOrders(p.ctx, p.batch(fresh)); !errors.Is(err, shard.ErrState) {
		t.Errorf("a message that nobody had seen: %v", err)
	}
	order := log[len(log)-1].Reservation.Order()
	pay := []shard.Step{{Order: order, Payment: "pay-1", Kind: shard.StepSucceeded, Amount: log[0].Price}}
	if _, err := p.store.StepOrders(p.ctx, time.Minute, pay); !errors.Is(err, shard.ErrState) {
		t.Errorf("a payment during the recovery: %v", err)
	}
	closed, open, err := p.store.CloseDue(p.ctx, 100, shard.CloseWaits{})
	if err != nil || len(closed) != 0 || len(open) != 0 {
		t.Errorf("closed %v, open %v, %v: nothing is due yet", closed, open, err)
	}
	p.sql("UPDATE cellquota.orders SET close_after = now() - interval '1 hour', expires_at = now() - interval '1 hour'")
	p.must(p.store.Heartbeat(p.ctx))
	if closed, open, err = p.store.CloseDue(p.ctx, 100, shard.CloseWaits{}); err != nil || len(closed) != 0 || len(open) != len(log) {
		t.Errorf("closed %d without asking, asked about %d of %d, %v", len(closed), len(open), len(log), err)
	}
	if unread := one[int](p.bench, "SELECT cellquota.recover_finish($1, 2)", string(cellID)); unread != 0 {
		t.Errorf("%d partitions are unread", unread)
	}
	res, err := p.store.StepOrders(p.ctx, time.Minute, pay)
	if err != nil || res[0].Err != nil || res[0].Order.State != "PAID" {
		t.Errorf("the payment afterwards: %+v %v", res, err)
	}
	p.sql("SELECT cellquota.activate_cell($1, 2, 'test', 1000)", string(cellID))
	if d := p.apply(fresh); d[0].Outcome != shard.Ordered {
		t.Errorf("the shard sells again: %+v", d)
	}
	p.invariants()
	if got := one[string](p.bench, "SELECT fence_version || ' ' || messages_from || ' ' || state FROM cellquota.fence"); got != "2 1 ACTIVE" {
		t.Errorf("fence %s", got)
	}
}

// TestAMessageReadAgainThatDoesNotFitIsParked: its user had a place once, and keeps it.
func TestAMessageReadAgainThatDoesNotFitIsParked(t *testing.T) {
	p := newPast(t)
	p.sql("SELECT cellquota.recover_begin($1, 2, $2, 1, $3, '[]', '[]', 'test', 1000)", string(cellID), group,
		fmt.Sprintf(`[{"topic":%q,"partition":0,"topic_id":%q,"next_offset":25}]`, topic, topicID))
	p.trusted(2)
	p.sql("SELECT cellquota.recover_messages($1, 2)", string(cellID))
	var all []shard.Message
	for i := range 22 {
		all = append(all, p.message(fmt.Sprintf("user-%d", i)))
	}
	var parked int
	for _, d := range p.apply(all...) {
		if d.Outcome == shard.Parked {
			parked++
		}
	}
	if parked != 2 || one[int](p.bench, "SELECT count(*)::int FROM cellquota.buyers") != 22 {
		t.Errorf("%d parked", parked)
	}
}

// TestAMessageReadAgainIsJudgedByTheFenceOfItsTime: behind where a fence found the log, lower versions were
// refused then and are now.
func TestAMessageReadAgainIsJudgedByTheFenceOfItsTime(t *testing.T) {
	p := newPast(t)
	p.sql("SELECT cellquota.recover_begin($1, 5, $2, 3, $3, $4, '[]', 'test', 1000)", string(cellID), group,
		fmt.Sprintf(`[{"topic":%q,"partition":0,"topic_id":%q,"next_offset":10}]`, topic, topicID),
		fmt.Sprintf(`[{"fence_version":2,"topic":%q,"partition":0,"topic_id":%q,"next_offset":1}]`, topic, topicID))
	p.trusted(5)
	p.sql("SELECT cellquota.recover_messages($1, 5)", string(cellID))
	d := p.apply(p.message("sold before the fence"), p.message("backlog of the fence"))
	if d[0].Outcome != shard.Ordered || d[1].Reason != "CELL_FENCED" {
		t.Errorf("%+v", d)
	}
}

// TestHoldsAskNothingOfAMessageReadAgain: an order was made because the one before it had been paid. The
// payment is lost with the shard's past, the order is not.
func TestHoldsAskNothingOfAMessageReadAgain(t *testing.T) {
	p := newPast(t)
	r := rules(phone)
	holdsAtMost(0, 1)(r)
	r.Version++
	p.install(r)
	from := func(user string) shard.Message {
		return p.message(user, func(m *shard.Message) { m.DeviceID = "device" })
	}
	p.sql("SELECT cellquota.recover_begin($1, 2, $2, 1, $3, '[]', '[]', 'test', 1000)", string(cellID), group,
		fmt.Sprintf(`[{"topic":%q,"partition":0,"topic_id":%q,"next_offset":2}]`, topic, topicID))
	p.trusted(2)
	p.sql("SELECT cellquota.recover_messages($1, 2)", string(cellID))
	for i, d := range p.apply(from("paid"), from("after it")) {
		if d.Outcome != shard.Ordered {
			t.Errorf("message %d: %+v", i, d)
		}
	}
	p.sql("SELECT cellquota.recover_finish($1, 2)", string(cellID))
	p.sql("SELECT cellquota.activate_cell($1, 2, 'test', 1000)", string(cellID))
	if d := p.apply(from("new")); d[0].Reason != reservation.TooManyUnpaid {
		t.Errorf("a new message: %+v", d)
	}
	p.invariants()
}

// TestAnOrderThatNobodySawIsAskedAboutToo: the last moments before the loss are in no witness. Their messages
// lie above where the log is read again, and their orders may have been paid all the same.
func TestAnOrderThatNobodySawIsAskedAboutToo(t *testing.T) {
	p := newPast(t)
	seen, unseen := p.message("seen"), p.message("unseen")
	later := p.message("later", func(m *shard.Message) { m.AdmittedAt = time.Now().Add(10 * time.Minute) })
	p.sql("SELECT cellquota.recover_begin($1, 2, $2, 1, $3, '[]', '[]', 'test', 1000)", string(cellID), group,
		fmt.Sprintf(`[{"topic":%q,"partition":0,"topic_id":%q,"next_offset":1}]`, topic, topicID))
	p.trusted(2)
	p.sql("SELECT cellquota.recover_messages($1, 2)", string(cellID))
	p.apply(seen)
	p.sql("SELECT cellquota.recover_finish($1, 2)", string(cellID))
	p.sql("SELECT cellquota.activate_cell($1, 2, 'test', 1000)", string(cellID))
	p.apply(unseen, later)
	for m, want := range map[*shard.Message]int{&seen: 1, &unseen: 1, &later: 0} {
		if n := one[int](p.bench, "SELECT count(*)::int FROM cellquota.payments WHERE order_id = $1 AND state = 'UNKNOWN'", string(m.Reservation.Order())); n != want {
			t.Errorf("%s: %d attempts to be asked about, want %d", m.User, n, want)
		}
	}
	p.invariants()
}
