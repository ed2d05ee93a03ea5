package settle_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/archive"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/report/verify"
	"github.com/cellquota/cellquota/controlplane/settle"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
	"github.com/cellquota/cellquota/internal/testkit/fault"
)

// over: 12 units are sold, 3 came back, and the sale is over.
func (w *world) over() *world {
	w.t.Helper()
	w.shards["cell-1"].sell("a", 10, 7, 3)
	w.shards["cell-2"].sell("b", 5, 5, 0)
	w.close()
	return w
}

// settled checks everything that settling promises, once.
func (w *world) settled() {
	w.t.Helper()
	c, q := w.now(), quantity.Must
	if c.State != core.CampaignSettled || c.SettledAt.IsZero() || len(c.Archive) != 2 {
		w.t.Fatalf("state %s, settled at %s, archive %+v; blocked by %v", c.State, c.SettledAt, c.Archive, w.driver(w.store, w.archive).Blockers(w.t.Context(), c))
	}
	if book := w.book(); !book.Settled {
		w.t.Error("the book begins steps still")
	}
	stock := w.stock()
	if _, holds := stock.Limits["c"]; holds || stock.Units != q(150-12) || stock.Limits["other"] != q(50) {
		w.t.Errorf("physical stock: %+v, want 138 units and no limit of c", stock)
	}
	if left := w.seen().Records("c", 0, 10); len(left) > 0 {
		w.t.Errorf("records are left in etcd: %+v", left)
	}
	records, err := settle.History{Archive: w.archive}.Records(w.t.Context(), c, 0, 100)
	if err != nil || len(records) != 2 || records[0].ID != core.SettledRecordID(key) || records[1].ID != core.PublishRecordID(key) {
		w.t.Errorf("archived journal: %+v, %v", records, err)
	}
	if len(records) == 2 && (len(records[1].Adjustments) != 2 || records[1].CreateRevision == 0 || records[1].Adjustments[0].Outcome != core.OutcomeApplied) {
		w.t.Errorf("the publish's record came back as %+v", records[1])
	}
	report, err := w.archive.Get(w.t.Context(), c.Archive[0])
	for _, want := range []string{`"sale_limit":100`, `"confirmed":12`, `{"cause":"UNALLOCATED","units":20}`, `"paid":12`, `"closed":3`, `"verdict":"OK"`, `"cell_id":"cell-2","sku_id":"s","allocated":40,"stock":{"granted":40,"available":35`} {
		if err != nil || !strings.Contains(string(report), want) {
			w.t.Errorf("report lacks %s: %s, %v", want, report, err)
		}
	}
}

func TestAClosedCampaignSettles(t *testing.T) {
	w := newWorld(t).over()
	for range 4 { // report; books, journal and settled; prune
		w.tick()
	}
	w.settled()
}

// What blocks is named with its number, and nothing settles meanwhile.
func TestWhatBlocksIsNamed(t *testing.T) {
	w := newWorld(t).over()
	outbox := func(state string) func() {
		return func() {
			w.shards["cell-2"].do(`INSERT INTO cellquota.outbox (target, aggregate, event_type, campaign_id, sku_id, payload, state, created_at)
				VALUES ('EVENTS', 'x', 'x', 'c', 's', '', $1, now())`, state)
		}
	}
	clear := func(sql string) func() { return func() { w.shards["cell-2"].do(sql) } }
	mirror := func(m verify.MirrorFacts) func() {
		return func() {
			w.cells.mu.Lock()
			defer w.cells.mu.Unlock()
			w.cells.mirrors["cell-2"] = m
		}
	}
	operation := func(kind, subject string, s core.OperationState) func() {
		return func() {
			w.update(func(tx *store.Tx) error {
				_, _, err := tx.Operation("op-1")
				return errors.Join(err, tx.PutOperation(core.Operation{ID: "op-1", Kind: kind, Subject: subject, State: s, Actor: "me", StartedAt: tx.Now()}))
			})
		}
	}
	state := func(s core.CellState) func() {
		return func() {
			w.update(func(tx *store.Tx) error {
				c, _, err := tx.Cell("cell-2")
				c.State, c.Version = s, c.Version+1
				return errors.Join(err, tx.PutCell(c))
			})
		}
	}
	for _, c := range []struct {
		name        string
		spoil, mend func()
		want        string
	}{
		{"reservation", func() { w.shards["cell-2"].sell("r", 1, 0, 0) }, clear("SELECT sale.close(1, 's', 'r0')"), "cell cell-2: 1 reservations are RESERVED"},
		{"review", clear("ALTER TABLE cellquota.reservations DISABLE TRIGGER USER; UPDATE cellquota.reservations SET state = 'MANUAL_REVIEW' WHERE user_id = 'r0'"), clear("UPDATE cellquota.reservations SET state = 'RELEASED' WHERE user_id = 'r0'"), "cell cell-2: 1 reservations are in MANUAL_REVIEW"},
		{"outbox", outbox("PENDING"), clear("DELETE FROM cellquota.outbox"), "cell cell-2: 1 outbox rows are not delivered"},
		{"outbox parked", outbox("PARKED"), clear("DELETE FROM cellquota.outbox"), "cell cell-2: 1 outbox rows are parked"},
		{"parked", clear("UPDATE cellquota.inbox SET outcome = 'PARKED' WHERE user_id = 'b0'"), clear("UPDATE cellquota.inbox SET outcome = 'ORDERED' WHERE user_id = 'b0'"), "cell cell-2: 1 parked messages are not reviewed"},
		{"finding", clear("INSERT INTO cellquota.findings (finding_id, kind, campaign_id, sku_id, units, state, found_at) VALUES ('f', 'QUANTITY_MISMATCH', 'c', 's', 1, 'OPEN', now())"), clear("UPDATE cellquota.findings SET state = 'REPAIRED'"), "cell cell-2: 1 findings are not repaired"},
		{"refund", clear("INSERT INTO cellquota.payments VALUES ('o-b0-s', 'p', 1, 'CNY', 'REFUND_PENDING', 'x', now(), now())"), clear("DELETE FROM cellquota.payments"), "cell cell-2: 1 refunds are under way"},
		{"unreachable", func() { w.shards["cell-2"].reachable(false); w.freshReader() }, func() { w.shards["cell-2"].reachable(true); w.freshReader() }, "cell cell-2: its shard does not answer"},
		{"outstanding", mirror(verify.MirrorFacts{Present: true, Outstanding: 3}), func() { w.quiet("cell-2") }, "cell cell-2: 3 accepted requests for s have no outcome"},
		{"stream", mirror(verify.MirrorFacts{Present: true, Stream: 2}), func() { w.quiet("cell-2") }, "2 are not in the log"},
		{"no mirror", mirror(verify.MirrorFacts{}), func() { w.quiet("cell-2") }, "it has no mirror of s"},
		{"fencing", state(core.CellFencing), state(core.CellActive), "cell cell-2: it is FENCING: reclaim it, or write it off"},
		{"limit", operation(core.OperationSetLimit, "c/s", core.OperationRunning), operation(core.OperationSetLimit, "c/s", core.OperationDone), "operation op-1 (set-sale-limit) is RUNNING"},
		{"transfer", operation(core.OperationTransfer, "c/s", core.OperationRunning), operation(core.OperationTransfer, "c/s", core.OperationDone), "operation op-1 (transfer-units) is RUNNING"},
		{"rebalance", operation(core.OperationRebalance, "c", core.OperationPending), operation(core.OperationFence, "c", core.OperationRunning), "operation op-1 (rebalance) is PENDING"}, // the fence is of a cell of that name
		{"no archive", func() { w.archive = nil }, func() { w.archive = archive.Directory{Dir: t.TempDir()} }, "no archive_dir"},
		{"too early", func() { w.after = time.Hour }, func() { w.after = 0 }, "less than settle.after (1h0m0s) ago"},
	} {
		c.spoil()
		d := w.driver(w.store, w.archive)
		got := strings.Join(d.Blockers(testkit.Deadline(t), w.now()), "; ")
		if !strings.Contains(got, c.want) {
			t.Errorf("%s: blocked by %q, want %q", c.name, got, c.want)
		}
		w.tick()
		if now := w.now(); now.State != core.CampaignClosed || len(now.Archive) > 0 {
			t.Fatalf("%s: %s with %+v", c.name, now.State, now.Archive)
		}
		c.mend()
	}
	w.cells.late = []string{"cell-1/p serves version 1"}
	w.tick()
	if len(w.now().Archive) > 0 {
		t.Error("settled while a process serves an older version")
	}
	w.cells.late = nil
	if left := w.driver(w.store, w.archive).Blockers(testkit.Deadline(t), w.now()); len(left) > 0 {
		t.Fatalf("nothing blocks any more, but %v", left)
	}
	for range 4 {
		w.tick()
	}
	if now := w.now(); now.State != core.CampaignSettled {
		t.Errorf("state %s", now.State)
	}
}

// An open operation, and a grant that no shard has answered, block.
func TestWhatIsOpenInTheControlPlaneBlocks(t *testing.T) {
	w := newWorld(t).over()
	w.update(func(tx *store.Tx) error {
		_, _, err := tx.Operation("op")
		return errors.Join(err, tx.PutOperation(core.Operation{ID: "op", Kind: core.OperationTransfer, Subject: "c", State: core.OperationRunning, StartedAt: time.Now()}))
	})
	w.edit("return", func(b core.Book) (core.Book, []core.Adjustment, error) {
		next, step, err := b.ProposeReturn(core.Cell{Spec: core.CellSpec{ID: "cell-1"}, State: core.CellActive, Version: 1, FenceVersion: 1}, quantity.Must(1))
		return next, []core.Adjustment{{ID: "r", Key: key, Cell: "cell-1", Kind: core.KindReturn, Units: quantity.Must(1), State: core.StateProposed, Step: step, CreatedAt: time.Now()}}, err
	})
	got := strings.Join(w.driver(w.store, w.archive).Blockers(testkit.Deadline(t), w.now()), "; ")
	for _, want := range []string{"operation op (transfer-units) is RUNNING", "1 journal records have no answer"} {
		if !strings.Contains(got, want) {
			t.Errorf("blocked by %q, want %q", got, want)
		}
	}
}

// A cell that is lost for good, and written off, is waited for no more: its units
// are counted as gone.
func TestAWrittenOffCellSettles(t *testing.T) {
	w := newWorld(t).over()
	w.shards["cell-2"].reachable(false)
	w.freshReader()
	w.edit("lost", func(b core.Book) (core.Book, []core.Adjustment, error) {
		next, err := b.WriteOff("cell-2")
		return next, nil, err
	})
	for range 4 {
		w.tick()
	}
	if now, stock := w.now(), w.stock(); now.State != core.CampaignSettled || stock.Units != quantity.Must(150-7-40) {
		t.Errorf("state %s, stock %+v", now.State, stock)
	}
}

// A limit that moved behind the report: the account is taken again.
func TestALimitThatMovesBehindTheReportIsCountedAgain(t *testing.T) {
	w := newWorld(t).over()
	w.tick()
	first := w.now().Archive
	if len(first) != 1 {
		t.Fatalf("no report: %+v", first)
	}
	w.edit("lower", func(b core.Book) (core.Book, []core.Adjustment, error) {
		b.SaleLimit, b.Reserve = quantity.Must(95), quantity.Must(15)
		return b, nil, nil
	})
	w.update(func(tx *store.Tx) error {
		s, _, err := tx.Stock("s")
		s.Limits = map[ids.CampaignID]quantity.Quantity{"c": quantity.Must(95), "other": quantity.Must(50)}
		return errors.Join(err, tx.PutStock(s))
	})
	for range 5 {
		w.tick()
	}
	now := w.now()
	if now.State != core.CampaignSettled || now.Archive[0] == first[0] {
		t.Errorf("state %s, report %+v after %+v", now.State, now.Archive, first)
	}
}

// A damaged report stops settling and names the object; nothing is taken from the
// stock on numbers that cannot be trusted.
func TestADamagedReportStopsSettling(t *testing.T) {
	w := newWorld(t).over()
	w.tick()
	lost := archive.Directory{Dir: t.TempDir()}
	w.archive = lost
	w.tick()
	if w.now().State != core.CampaignClosed || w.book().Settled {
		t.Error("settled without its report")
	}
}

// The process dies before, or with the answer of, its n-th write in etcd or in the
// archive; a new leader goes on. Wherever it died, it ends as if nobody had.
func TestSettlingOutlivesItsLeader(t *testing.T) {
	etcd, of := testkit.Etcd(t, 1), newShards(t)
	sold := false
	for _, after := range []bool{false, true} {
		died := 0
		for n := 1; ; n++ {
			w := newWorldOn(t, etcd, of)
			if !sold {
				w.shards["cell-1"].sell("a", 10, 7, 3)
				w.shards["cell-2"].sell("b", 5, 5, 0)
				sold = true
			}
			w.close()
			if !w.live(n, after) {
				break
			}
			died++
			w.lead()
			for range 4 {
				w.tick()
			}
			w.settled()
			if t.Failed() {
				t.Fatalf("died at effect %d, answer lost: %v", n, after)
			}
		}
		if died < 6 { // report put and named, book, journal put, settled, prune
			t.Errorf("only %d deaths were tried", died)
		}
	}
}

type mortalArchive struct {
	archive.Archive
	life *fault.Life
}

func (a mortalArchive) Put(ctx context.Context, name string, content []byte) (object core.ArchiveObject, err error) {
	err = a.life.Spend(func() (err error) {
		object, err = a.Archive.Put(context.WithoutCancel(ctx), name, content)
		return err
	})
	return object, err
}

// live lets a driver of the present leader settle until it dies at its n-th effect,
// and tells whether it did.
func (w *world) live(n int, after bool) (died bool) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(testkit.Deadline(w.t))
	defer cancel()
	l := fault.Live(n, after, cancel)
	d := w.driver(w.openStore(l.KV), mortalArchive{w.archive, l})
	for range 6 {
		if d.Tick(ctx, w.leader); l.Dead() {
			return true
		}
		w.seen()
	}
	w.settled()
	return false
}

func TestHistoryPagesThroughTheArchive(t *testing.T) {
	w := newWorld(t)
	for i := range 5 {
		w.edit(fmt.Sprintf("move-%d", i), func(b core.Book) (core.Book, []core.Adjustment, error) {
			next, err := b.Rebase(core.Cell{Spec: core.CellSpec{ID: "cell-1"}, State: core.CellActive, Version: 1, FenceVersion: 1})
			return next, nil, err
		})
	}
	w.over()
	want := w.seen().Records("c", 0, 100)
	for range 4 {
		w.tick()
	}
	c, h := w.now(), settle.History{Archive: w.archive}
	var got []core.Record
	before := int64(0)
	for {
		page, err := h.Records(t.Context(), c, before, 2)
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, page...); len(page) < 2 {
			break
		}
		before = page[1].CreateRevision
	}
	if len(got) != len(want)+1 { // and the one that settled it
		t.Fatalf("%d records came back, %d were archived", len(got), len(want)+1)
	}
	for i, r := range want {
		if got[i+1].ID != r.ID || got[i+1].ModRevision != r.ModRevision || !got[i+1].At.Equal(r.At) {
			t.Errorf("record %d: %+v, want %+v", i, got[i+1], r)
		}
	}
	if _, err := (settle.History{}).Records(t.Context(), c, 0, 1); !errors.Is(err, archive.ErrUnavailable) {
		t.Errorf("without an archive: %v", err)
	}
}
