// Package handover_test hands buckets over between two real shards, with the cell's own order
// transaction on either side (architecture 5; docs/spec/quota.pml has the model). What must hold
// throughout is I4: one order per user over all shards.
package handover_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/fencing"
	"github.com/cellquota/cellquota/fencing/fencer"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

func half(n int32) *pb.BucketRange {
	return &pb.BucketRange{BucketFrom: n * 2048, BucketTo: n*2048 + 2047}
}

func twoCells(t *testing.T, units int32) (a, b *cell) {
	t.Helper()
	return newCell(t, "cell-a", units, half(0)), newCell(t, "cell-b", units, half(1))
}

func move(from, to uint16, version int64) fencer.Move {
	return fencer.Move{Campaign: string(campaign), Range: fencer.BucketRange{From: from, To: to}, RouteVersion: version, Handover: "h"}
}

// TestABuyerOfTheOldHomeBuysNothingAtTheNew: the range cuts rows; orders, rejections and MOVED are met
// at the new home as they were left.
func TestABuyerOfTheOldHomeBuysNothingAtTheNew(t *testing.T) {
	a, b := twoCells(t, 3)
	buyer, second, late, fresh := userIn(0, 100, 199), userIn(1, 100, 199), userIn(2, 100, 199), userIn(3, 100, 199)
	stays := userIn(0, 200, 2047)
	for _, u := range []ids.UserID{buyer, stays} {
		if d := a.decide(u, "r"); d.Outcome != shard.Ordered {
			t.Fatalf("%s: %+v", u, d)
		}
	}
	if d := a.decide(buyer, "r2"); d.Reason != reservation.AlreadyReserved {
		t.Fatalf("second order: %+v", d)
	}
	if d := a.decide(second, "r"); d.Outcome != shard.Ordered { // the last unit
		t.Fatalf("%+v", d)
	}
	if d := a.decide(fresh, "sold-out"); d.Reason != reservation.SoldOut {
		t.Fatalf("%+v", d)
	}
	m := move(100, 199, 2)
	if _, err := a.ExportBuyers(a.ctx, m, nil, 10); !errors.Is(err, fencer.ErrBuckets) {
		t.Fatalf("an export of open buckets: %v", err)
	}
	what, err := a.CloseBuckets(a.ctx, "cell-a", m)
	a.must(err)
	if got := a.buckets(); got != "0-99 OPEN 1, 100-199 CLOSED 2, 200-2047 OPEN 1" {
		t.Errorf("buckets of the source: %s", got)
	}
	if d := a.decide(late, "r"); d.Reason != reservation.Moved {
		t.Errorf("a late message of a closed bucket: %+v", d)
	}
	if d := b.decide(late, "early"); d.Reason != reservation.Moved {
		t.Errorf("before the buckets were opened: %+v", d)
	}
	at := carry(a, b, m, what, 1)
	if !at.Open || at.Buyers != 2 {
		t.Errorf("import: %+v", at)
	}
	if got := b.buckets(); got != "100-199 OPEN 2, 2048-4095 OPEN 1" {
		t.Errorf("buckets of the target: %s", got)
	}
	if d := b.decide(buyer, "another"); d.Reason != reservation.AlreadyReserved {
		t.Errorf("a buyer of the old home: %+v", d)
	}
	if d := b.decide(fresh, "sold-out"); d.Reason != reservation.SoldOut {
		t.Errorf("a request that was answered SOLD_OUT: %+v", d)
	}
	for user, request := range map[ids.UserID]ids.RequestID{late: "r", fresh: "next"} {
		if d := b.decide(user, request); d.Outcome != shard.Ordered {
			t.Errorf("%s is free to buy: %+v", user, d)
		}
	}
	row, err := b.store.LookupRequest(b.ctx, campaign, phone, buyer, "r")
	a.must(err)
	if own, err := a.store.LookupRequest(a.ctx, campaign, phone, buyer, "r"); err != nil || !row.Found || row.Reservation != own.Reservation || row.Order != own.Order || row.Outcome != shard.Ordered {
		t.Errorf("the new home says %+v, the old one %+v, %v", row, own, err)
	}
	if row.Reservation.Cell() != "cell-a" {
		t.Errorf("reservation %s does not name its cell", row.Reservation)
	}
	if positions := a.text("SELECT positions->0->>'next_offset' FROM cellquota.v_bucket_closings"); positions != "5" {
		t.Errorf("position of the closing: %s, five messages were applied before it", positions)
	}
}

// TestAMirrorShowsWhomTheHandoverCarried, by an effect when it runs and by the snapshot when it is
// built anew, each with the request that has the order: its repeat is a repeat.
func TestAMirrorShowsWhomTheHandoverCarried(t *testing.T) {
	a, b := twoCells(t, 1)
	buyer := userIn(0, 0, 9)
	a.decide(buyer, "r")
	m := move(0, 9, 2)
	what, err := a.CloseBuckets(a.ctx, "cell-a", m)
	a.must(err)
	carry(a, b, m, what, 100)
	if n := b.count("outbox WHERE target = 'MIRROR' AND event_type = 'carried' AND state = 'PENDING'"); n != 1 {
		t.Errorf("%d effects of carried buyers", n)
	}
	shown := func() bool {
		t.Helper()
		table, err := b.store.ShownBuckets(b.ctx, campaign)
		a.must(err)
		if !table.Owns("", userIn(0, 2048, 4095)) {
			t.Error("the mirror lost what the cell had before")
		}
		return table.Owns("", buyer)
	}
	if shown() {
		t.Error("a mirror may admit users of buckets whose buyers it does not know")
	}
	_, err = b.admin.Exec(b.ctx, "UPDATE cellquota.outbox SET state = 'PUBLISHED', published_at = now() WHERE event_type = 'carried'")
	a.must(err)
	if !shown() {
		t.Error("the marks have left, and the mirror may not admit")
	}
	snap, err := b.store.MirrorSnapshot(b.ctx, campaign, string(phone))
	a.must(err)
	defer snap.Close(b.ctx)
	var marks []shard.Mark
	for mark, err := range snap.Marks(b.ctx) {
		a.must(err)
		marks = append(marks, mark)
	}
	if len(marks) != 1 || !marks[0].Carried || marks[0].User != buyer || marks[0].Request != "r" || marks[0].SKU != phone || marks[0].Quantity != 1 {
		t.Errorf("marks: %+v", marks)
	}
}

// TestEveryStepTwice: an answer that was lost is asked for again; a page that arrived is known; what
// belongs to another route version, or does not follow, is refused by name.
func TestEveryStepTwice(t *testing.T) {
	a, b := twoCells(t, 10)
	for n := range 5 {
		a.decide(userIn(n, 0, 2047), "r")
	}
	m := move(0, 4095, 2) // moves what a owns of it
	var what fencer.Closed
	for range 2 {
		closed, err := a.CloseBuckets(a.ctx, "cell-a", m)
		a.must(err)
		if what = closed; len(what) != 1 || what[0] != (fencer.BucketRange{From: 0, To: 2047}) {
			t.Fatalf("closed %+v", what)
		}
	}
	if _, err := b.OpenBuckets(b.ctx, "cell-b", m); !errors.Is(err, fencer.ErrBuckets) {
		t.Errorf("opened before it was begun: %v", err)
	}
	for range 2 {
		_, err := b.ImportBuckets(b.ctx, "cell-b", m, what)
		a.must(err)
	}
	first, err := a.ExportBuyers(a.ctx, m, nil, 2)
	a.must(err)
	second, err := a.ExportBuyers(a.ctx, m, first.Next, 2)
	a.must(err)
	if _, err := b.ImportBuyers(b.ctx, "cell-b", m, second); !errors.Is(err, fencer.ErrBuckets) {
		t.Errorf("a page that does not follow: %v", err)
	}
	for range 2 {
		at, err := b.ImportBuyers(b.ctx, "cell-b", m, first)
		a.must(err)
		if at.Buyers != 2 {
			t.Errorf("after a page of two: %+v", at)
		}
	}
	if _, err := b.OpenBuckets(b.ctx, "cell-b", m); !errors.Is(err, fencer.ErrBuckets) {
		t.Errorf("opened half: %v", err)
	}
	for range 2 {
		if at := carry(a, b, m, what, 2); !at.Open || at.Buyers != 5 || at.Requests != 5 {
			t.Errorf("whole: %+v", at)
		}
	}
	if n := b.count("buyers WHERE origin = 'CARRIED'"); n != 5 {
		t.Errorf("%d places", n)
	}
	for name, try := range map[string]func() error{
		"an old route version closes": func() error { _, err := b.CloseBuckets(b.ctx, "cell-b", move(5, 9, 2)); return err },
		"an old route version opens": func() error {
			_, err := a.ImportBuckets(a.ctx, "cell-a", move(5, 9, 2), fencer.Closed{{From: 5, To: 9}})
			return err
		},
	} {
		if err := try(); !errors.Is(err, fencer.ErrRouteVersion) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := a.CloseBuckets(a.ctx, "cell-a", move(0, 9, 3)); !errors.Is(err, fencer.ErrBuckets) {
		t.Errorf("closed what it does not own: %v", err)
	}
	if _, err := a.CloseBuckets(a.ctx, "cell-b", move(0, 9, 4)); !errors.Is(err, fencer.ErrOtherCell) {
		t.Errorf("closed at another cell: %v", err)
	}
	if _, err := a.CloseBuckets(a.ctx, "cell-a", move(9, 0, 4)); !errors.Is(err, fencer.ErrMove) {
		t.Errorf("a range that ends before it begins: %v", err)
	}
}

// TestTwoHandoversOfOneVersion: etcd was restored from a backup and counts its route versions anew. What
// one handover closed and took in is no answer to another, or two cells would sell to the same users.
func TestTwoHandoversOfOneVersion(t *testing.T) {
	a, b := twoCells(t, 10)
	m := move(0, 99, 2)
	what, err := a.CloseBuckets(a.ctx, "cell-a", m)
	a.must(err)
	carry(a, b, m, what, 10)
	m.Handover = "another"
	for name, try := range map[string]func() error{
		"closed": func() error { _, err := a.CloseBuckets(a.ctx, "cell-a", m); return err },
		"taken":  func() error { _, err := b.ImportBuckets(b.ctx, "cell-b", m, what); return err },
	} {
		if err := try(); !errors.Is(err, fencer.ErrRouteVersion) {
			t.Errorf("%s for another: %v", name, err)
		}
	}
	m.Handover = ""
	if _, err := a.CloseBuckets(a.ctx, "cell-a", m); !errors.Is(err, fencer.ErrMove) {
		t.Errorf("closed for nobody: %v", err)
	}
}

// TestThereAndBack: a bucket goes to another cell and on, or comes home, with everybody who bought
// anywhere on its way.
func TestThereAndBack(t *testing.T) {
	a, b := twoCells(t, 10)
	c := newCell(t, "cell-c", 10)
	atA, atB := userIn(0, 0, 99), userIn(1, 0, 99)
	hand := func(from, to *cell, version int64) {
		t.Helper()
		m := move(0, 99, version)
		what, err := from.CloseBuckets(from.ctx, string(from.id), m)
		from.must(err)
		carry(from, to, m, what, 3)
	}
	a.decide(atA, "r")
	hand(a, b, 2)
	b.decide(atB, "r")
	hand(b, c, 3)
	hand(c, a, 4)
	for _, cell := range []*cell{a, b, c} {
		cell.rules([]*pb.BucketRange{{BucketTo: 4095}}) // what a publish deals is installed once, and never again
	}
	for _, user := range []ids.UserID{atA, atB} {
		if d := a.decide(user, "again"); d.Reason != reservation.AlreadyReserved {
			t.Errorf("%s: %+v", user, d)
		}
		for _, gone := range []*cell{b, c} {
			if d := gone.decide(user, "again"); d.Reason != reservation.Moved {
				t.Errorf("%s at %s: %+v", user, gone.id, d)
			}
		}
	}
	if d := a.decide(userIn(2, 0, 99), "r"); d.Outcome != shard.Ordered {
		t.Errorf("somebody else: %+v", d)
	}
	if got := a.text("SELECT string_agg(origin, ' ' ORDER BY origin) FROM cellquota.v_buyers"); got != "CARRIED OWN OWN" {
		t.Errorf("places of a: %s", got)
	}
}

// TestTwoOrdersOfOneUserStopAHandover: a breach of I4 is named by both reservations, and nothing of the
// page stays.
func TestTwoOrdersOfOneUserStopAHandover(t *testing.T) {
	a, b := twoCells(t, 10)
	user := userIn(0, 0, 99)
	a.decide(user, "r")
	_, err := b.admin.Exec(b.ctx, "INSERT INTO cellquota.buyers VALUES ('c', 's', $1, 'OWN', 'cell-b.rother', now())", string(user))
	a.must(err)
	m := move(0, 99, 2)
	what, err := a.CloseBuckets(a.ctx, "cell-a", m)
	a.must(err)
	_, err = b.ImportBuckets(b.ctx, "cell-b", m, what)
	a.must(err)
	page, err := a.ExportBuyers(a.ctx, m, nil, 100)
	a.must(err)
	if _, err = b.ImportBuyers(b.ctx, "cell-b", m, page); !errors.Is(err, fencer.ErrTwoOrders) || !strings.Contains(err.Error(), "cell-b.rother") {
		t.Errorf("import: %v", err)
	}
	if n := b.count("bucket_imports WHERE buyers > 0"); n != 0 {
		t.Error("the page counts as arrived")
	}
}

// TestAFencedSourceAndAFencedTarget: a dead cell's buckets go to another by the same steps; a fenced
// target takes nothing.
func TestAFencedSourceAndAFencedTarget(t *testing.T) {
	a, b := twoCells(t, 10)
	user := userIn(0, 0, 99)
	a.decide(user, "r")
	_, err := a.Fence(a.ctx, "cell-a", 2, "dead")
	a.must(err)
	m := move(0, 2047, 2)
	what, err := a.CloseBuckets(a.ctx, "cell-a", m)
	a.must(err)
	carry(a, b, m, what, 100)
	if d := b.decide(user, "again"); d.Reason != reservation.AlreadyReserved {
		t.Errorf("%+v", d)
	}
	if _, err := b.CloseBuckets(b.ctx, "cell-b", move(0, 99, 3)); err != nil {
		t.Fatal(err)
	}
	if _, err := a.ImportBuckets(a.ctx, "cell-a", move(0, 99, 3), fencer.Closed{{From: 0, To: 99}}); !errors.Is(err, fencer.ErrStateRefused) {
		t.Errorf("a fenced target: %v", err)
	}
}

// TestAShardInRecoveryGivesNothing: paid orders that it lacks are made again from its log, so until then
// nobody may take its word on who bought; a fence in the midst of it makes none of them.
func TestAShardInRecoveryGivesNothing(t *testing.T) {
	a, _ := twoCells(t, 10)
	seen := fencing.Witness{Version: 1, Positions: map[fencing.Partition]fencing.PositionMark{{Topic: "t"}: {TopicID: "id", Next: 3}}}
	a.must(a.RecoverBegin(a.ctx, "cell-a", 2, group, "a test", fencer.RecoverTo{Seen: seen}))
	refused := func(when string) {
		t.Helper()
		if _, err := a.CloseBuckets(a.ctx, "cell-a", move(0, 99, 2)); !errors.Is(err, fencer.ErrStateRefused) {
			t.Errorf("%s: %v", when, err)
		}
		if n := a.count("bucket_closings"); n != 0 {
			t.Errorf("%s: closed", when)
		}
	}
	refused("adjustments are replayed")
	a.must(a.RecoverMessages(a.ctx, "cell-a", 2))
	refused("the log is read again")
	_, err := a.admin.Exec(a.ctx, "UPDATE cellquota.fence SET state = 'FENCED'")
	a.must(err)
	refused("fenced meanwhile")
	_, err = a.admin.Exec(a.ctx, "UPDATE cellquota.fence SET state = 'SETTLE_ONLY'; UPDATE cellquota.positions SET next_offset = 3")
	a.must(err)
	if unread, err := a.RecoverFinish(a.ctx, "cell-a", 2); err != nil || unread != 0 {
		t.Fatalf("%d unread, %v", unread, err)
	}
	if _, err := a.CloseBuckets(a.ctx, "cell-a", move(0, 99, 2)); err != nil {
		t.Errorf("recovered: %v", err)
	}
}

// TestALiveSourceIsNotHurt: a writer that hangs makes the closing wait and fail by name; its backend
// lives, and it commits.
func TestALiveSourceIsNotHurt(t *testing.T) {
	a, _ := twoCells(t, 10)
	w := a.db.ConnAs(t, "cellquota_app")
	do := func(sql string) {
		t.Helper()
		if _, err := w.Exec(a.ctx, sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	do("BEGIN")
	do("SELECT pg_advisory_xact_lock_shared(cellquota.lock_key())")
	f := a.fencer(20 * time.Millisecond)
	if _, err := f.CloseBuckets(a.ctx, "cell-a", move(0, 99, 2)); !errors.Is(err, fencer.ErrWriters) {
		t.Fatalf("closing beside a writer: %v", err)
	}
	do("COMMIT")
	if _, err := f.CloseBuckets(a.ctx, "cell-a", move(0, 99, 2)); err != nil {
		t.Fatal(err)
	}
}

// TestOrdersRaceAHandover: batches run at the source while its buckets are closed and carried away in
// the midst of them. Whoever committed before is in the export, nobody is added after, and asked at
// both homes for ever each user has one order.
func TestOrdersRaceAHandover(t *testing.T) {
	a, b := twoCells(t, 100_000)
	const users = 40
	var rounds atomic.Int64
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			batch := make([]shard.Message, users)
			for i := range batch {
				batch[i] = a.ask(ids.UserID(fmt.Sprint("n", n, "-", i)), "r")
			}
			if _, err := a.apply(batch...); err != nil {
				done <- err
				return
			}
			rounds.Add(1)
		}
	}()
	wait := func(n int64) {
		t.Helper()
		testkit.Eventually(t, 30*time.Second, func() error {
			if rounds.Load() < n {
				return errors.New("the source sells too little yet")
			}
			return nil
		})
	}
	wait(5)
	m := move(0, 1023, 2)
	what, err := a.CloseBuckets(a.ctx, "cell-a", m)
	a.must(err)
	before := map[string]bool{}
	collect := func(into map[string]bool) {
		t.Helper()
		for page := (fencer.Page[fencer.Buyer]{}); !page.Last; {
			page, err = a.ExportBuyers(a.ctx, m, page.Next, 50)
			a.must(err)
			for _, r := range page.Rows {
				into[r.Reservation] = true
			}
		}
	}
	collect(before)
	wait(rounds.Load() + 5)
	close(stop)
	a.must(<-done)
	after := map[string]bool{}
	collect(after)
	if len(before) == 0 || len(after) != len(before) {
		t.Errorf("%d buyers at the closing, %d after more batches: none may be added", len(before), len(after))
	}
	carry(a, b, m, what, 50)
	rows, err := a.admin.Query(a.ctx, "SELECT user_id FROM cellquota.v_buyers")
	a.must(err)
	var bought []ids.UserID
	for rows.Next() {
		var u ids.UserID
		a.must(rows.Scan(&u))
		bought = append(bought, u)
	}
	a.must(rows.Err())
	asked := 0
	for _, u := range bought {
		if ids.Bucket(u) > 1023 {
			continue
		}
		asked++
		if d := b.decide(u, "again"); d.Outcome == shard.Ordered {
			t.Errorf("%s has two orders (I4)", u)
		}
	}
	if asked != len(before) {
		t.Errorf("%d buyers of the source are in the closed buckets, the export has %d", asked, len(before))
	}
	if b.count("orders") != 0 {
		t.Error("the target sold to a buyer of the source")
	}
}

// TestAPageThatWasCutOff left nothing, and the handover goes on with it.
func TestAPageThatWasCutOff(t *testing.T) {
	a, b := twoCells(t, 10)
	for n := range 4 {
		a.decide(userIn(n, 0, 2047), "r")
	}
	m := move(0, 2047, 2)
	what, err := a.CloseBuckets(a.ctx, "cell-a", m)
	a.must(err)
	_, err = b.ImportBuckets(b.ctx, "cell-b", m, what)
	a.must(err)
	page, err := a.ExportBuyers(a.ctx, m, nil, 2)
	a.must(err)
	gone, cancel := context.WithCancel(b.ctx)
	cancel()
	if _, err := b.fencer(time.Second).ImportBuyers(gone, "cell-b", m, page); err == nil {
		t.Fatal("a page arrived on a context that had ended")
	}
	if at := carry(a, b, m, what, 2); at.Buyers != 4 || b.count("buyers") != 4 {
		t.Errorf("%+v", at)
	}
}
