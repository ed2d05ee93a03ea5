package verify_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/report/verify"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
)

func TestAHealthySaleHolds(t *testing.T) {
	w := newWorld(t)
	w.mirrors["cell-1"] = verify.MirrorFacts{Present: true, FenceVersion: 1, Stock: 35}
	w.mirrors["cell-2"] = verify.MirrorFacts{Present: true, FenceVersion: 1, Stock: 35}
	r := w.verify()
	want := map[verify.Invariant]verify.Verdict{verify.I6: verify.Skipped, verify.I10: verify.Skipped}
	for _, i := range verify.All {
		v, ok := want[i]
		if !ok {
			v = verify.OK
		}
		if got := verdict(r, i); got != v {
			t.Errorf("%s: %s, want %s", i, got, v)
		}
	}
	if !r.Holds() || len(r.Unchecked) != 0 || r.Revision != 7 {
		t.Fatalf("%+v", r)
	}
}

// What a REVERSAL took back counts as none: its reservation is whole again.
func TestAReversedEntryIsNoBreach(t *testing.T) {
	w := newWorld(t)
	w.shards["cell-1"].do("SELECT sale.entry(1, 's', 'RELEASE', 'r-a0-s', 1, 0, -1)")
	if r := w.verify(); verdict(r, verify.I7) != verify.Broken {
		t.Fatalf("before: %+v", r)
	}
	w.shards["cell-1"].do(`WITH s AS (UPDATE cellquota.stock SET available = available - 1, confirmed = confirmed + 1, version = version + 1 WHERE campaign_id = 'c' AND sku_id = 's' RETURNING *)
		INSERT INTO cellquota.ledger (campaign_id, sku_id, action, business_no, idempotency_key, delta_available, delta_reserved, delta_confirmed, before_available, after_available,
			before_reserved, after_reserved, before_confirmed, after_confirmed, stock_version, fence_version, source, actor, reverses, created_at)
		SELECT 'c', 's', 'REVERSAL', 'cell-1.f1', 'REVERSAL:cell-1.f1:1', -1, 0, 1, available + 1, available, reserved, reserved, confirmed - 1, confirmed, version, 1, 'repair', 'olga',
			(SELECT max(entry_id) FROM cellquota.ledger WHERE business_no = 'r-a0-s' AND action = 'RELEASE'), cellquota.now() FROM s`)
	if r := w.verify(); !r.Holds() {
		t.Errorf("%+v", r)
	}
}

// broken is one way to break one invariant, and how the breach is named.
type broken struct {
	name    string
	i       verify.Invariant
	how     func(w *world)
	words   []string
	sampled bool // the Sampler sees it too
}

func all() []broken {
	return []broken{
		{"a book that does not add up", verify.I1, func(w *world) { w.cut.Books[0].Reserve = quantity.Must(21) }, []string{"sale_limit 100", "reserve 21"}, true},
		{"a book that cannot be read", verify.I1, func(w *world) {
			w.cut.Unreadable = map[string]error{"books: /cellquota/books/c/t": errors.New("its sum is off")}
		}, []string{"c/t", "its sum is off"}, true},
		{"more in the shard than in the book", verify.I2, func(w *world) { w.cut.Books[0] = shift(w.cut.Books[0], 10) }, []string{"cell-1", "40 units", "30"}, true},
		{"a stock row that is not its sum", verify.I2, func(w *world) {
			w.shards["cell-1"].unguarded("UPDATE cellquota.stock SET granted = granted - 1")
		}, []string{"cell-1", "granted 39"}, true},
		{"reserved without reservations", verify.I2, func(w *world) { w.shards["cell-1"].do("SELECT sale.entry(1, 's', 'RESERVE', 'ghost', -1, 1, 0)") }, []string{"reserved 4", "3 in reservations"}, false},
		{"units of a SKU that has no book", verify.I2, func(w *world) {
			w.shards["cell-2"].do("SELECT sale.rules(1, 'x')")
			w.shards["cell-2"].do("SELECT sale.adjust(1, 'x', 'gx', 1, 'GRANT', 3, 'r')")
		}, []string{"cell-2", "3 units", "no book"}, false},
		{"oversold", verify.I3, func(w *world) { lower(w, 10) }, []string{"reserved 3", "confirmed 7", "exceed the sale limit 9"}, true},
		{"more granted than there is", verify.I3, func(w *world) { lower(w, 50) }, []string{"granted 80", "exceed the sale limit"}, true},
		{"limits above the physical stock", verify.I3, func(w *world) { w.cut.Physical[0].Units = quantity.Must(99) }, []string{"s"}, true},
		{"one user in two shards", verify.I4, func(w *world) { w.sell("cell-2", "a", 1, 0) }, []string{"a0", "cell-1", "cell-2", "o-a0-s"}, true},
		{"a changed ledger entry", verify.I5, func(w *world) {
			w.shards["cell-1"].unguarded("UPDATE cellquota.ledger SET delta_available = delta_available + 1, after_available = after_available + 1 WHERE business_no = 'r-a0-s' AND action = 'RESERVE'")
		}, []string{"cell-1", "entry"}, true},
		{"a stock row that moved without an entry", verify.I5, func(w *world) {
			w.shards["cell-1"].do("UPDATE cellquota.stock SET available = available - 1, reserved = reserved + 1")
		}, []string{"cell-1", "34/4/2"}, false},
		{"a partition that lets changes through", verify.I5, func(w *world) {
			w.shards["cell-1"].do("ALTER TABLE cellquota_ledger.c DISABLE TRIGGER part_is_immutable")
			w.shards["cell-1"].do("ALTER TABLE cellquota_ledger.c DISABLE TRIGGER ledger_is_immutable")
		}, []string{"cell-1", "table c of the ledger", "UPDATE and DELETE"}, false},
		{"a partition that can be emptied", verify.I5, func(w *world) {
			w.shards["cell-2"].do("DROP TRIGGER part_is_not_truncated ON cellquota_ledger.c")
		}, []string{"cell-2", "table c of the ledger", "TRUNCATE"}, false},
		{"an archive that lets changes through", verify.I5, func(w *world) {
			w.shards["cell-2"].do("ALTER TABLE cellquota.ledger_archive DISABLE TRIGGER archive_is_immutable")
		}, []string{"cell-2", "table ledger_archive of the ledger", "UPDATE and DELETE"}, false},
		{"an accepted request that lost its order", verify.I6, func(w *world) {
			w.shards["cell-1"].do("DELETE FROM cellquota.orders WHERE order_id = 'o-a3-s'")
		}, []string{"cell-1", "reserve-r-a3-s", "request q-a3", "r-a3-s is RESERVED", "order missing"}, false},
		{"two opposite errors that leave the totals equal", verify.I7, func(w *world) {
			w.shards["cell-1"].do("ALTER TABLE cellquota.orders DISABLE TRIGGER USER") // which refuses the first of the two
			w.shards["cell-1"].do("UPDATE cellquota.orders SET state = 'CLOSED', paid_at = NULL, closed_at = now() WHERE order_id = 'o-a0-s'")
			w.shards["cell-1"].do("UPDATE cellquota.orders SET state = 'PAID', paid_at = now(), closed_at = NULL WHERE order_id = 'o-a5-s'")
		}, []string{"o-a0-s is CLOSED", "CONFIRMED"}, false},
		{"a restocked unit that was counted twice", verify.I2, func(w *world) {
			w.shards["cell-1"].do("SELECT sale.entry(1, 's', 'RESTOCK', 'rf-1', 1, 0, -1)")
			w.shards["cell-1"].do("SELECT sale.entry(1, 's', 'CONFIRM', 'ghost', 0, -1, 1)")
		}, []string{"reserved 2", "3 in reservations", "confirmed 2 and 1 restocked, 2 in reservations"}, false},
		{"a parked unit that the mirror gave back", verify.I9, func(w *world) {
			w.shards["cell-1"].do("UPDATE cellquota.inbox SET outcome = 'PARKED' WHERE user_id = 'a5'")
			w.shards["cell-1"].do("INSERT INTO cellquota.parked (topic, topic_id, partition, kafka_offset, error_class, value, parked_at) VALUES ('t', 'i', 0, 0, '22', '', now())")
			w.mirrors["cell-1"] = verify.MirrorFacts{Present: true, FenceVersion: 1, Build: "1.1", Stock: 35}
		}, []string{"cell-1", "build 1.1 has 35", "35 available and 1 of them parked"}, false},
		{"confirmed twice", verify.I7, func(w *world) {
			w.shards["cell-1"].unguarded("ALTER TABLE cellquota.ledger DROP CONSTRAINT ledger_once_per_action", "SELECT sale.entry(1, 's', 'CONFIRM', 'r-a0-s', 0, -1, 1)")
		}, []string{"r-a0-s", "2 CONFIRM"}, false},
		{"confirmed and released", verify.I7, func(w *world) { w.shards["cell-1"].do("SELECT sale.entry(1, 's', 'RELEASE', 'r-a0-s', 1, 0, -1)") }, []string{"r-a0-s", "1 CONFIRM, 1 RELEASE"}, false},
		{"an order that its reservation does not know", verify.I7, func(w *world) {
			w.shards["cell-1"].do("UPDATE cellquota.orders SET state = 'PAID', paid_at = now() WHERE order_id = 'o-a3-s'")
		}, []string{"o-a3-s is PAID", "RESERVED"}, false},
		{"written under an old fence version", verify.I8, func(w *world) {
			f := w.shards["cell-1"].fencer()
			if _, err := f.Fence(w.t.Context(), "cell-1", 2, "dead"); err != nil {
				w.t.Fatal(err)
			}
			w.shards["cell-1"].do("SELECT sale.entry(1, 's', 'CONFIRM', 'r-a3-s', 0, -1, 1)")
		}, []string{"cell-1", "fence version 1", "version 2"}, true},
		{"a quiet mirror with more than the shard", verify.I9, func(w *world) {
			w.mirrors["cell-1"] = verify.MirrorFacts{Present: true, FenceVersion: 1, Stock: 36}
		}, []string{"cell-1", "36", "35"}, false},
		{"units that are nowhere at the end", verify.I10, func(w *world) {
			end(w)
			w.shards["cell-2"].do("SELECT sale.adjust(1, 's', 'lost', 2, 'RETURN', 4, 'r')") // the shard let go of 4, the book never got them
		}, []string{"nothing is under way", "cell cell-2: the book allocates 40, the shard holds 36"}, false},
	}
}

// shift moves n units of cell-1's allocation to the reserve: the shard was not asked.
func shift(b core.Book, n int64) core.Book {
	q := quantity.Must
	b.Allocations = append([]core.Allocation(nil), b.Allocations...)
	b.Allocations[0].Granted = q(b.Allocations[0].Granted.Int64() - n)
	b.Reserve = q(b.Reserve.Int64() + n)
	return b
}

// lower makes the limit n − 1 behind the shards' backs.
func lower(w *world, n int64) {
	b := &w.cut.Books[0]
	b.SaleLimit, b.Reserve = quantity.Must(n-1), quantity.Must(0)
	b.Allocations[0].Granted, b.Allocations[1].Granted = quantity.Must(n-1), quantity.Must(0)
}

// end closes the campaign and settles what is open.
func end(w *world) {
	w.cut.Campaigns[0].State = core.CampaignClosed
	for _, user := range []string{"a2", "a3", "a4"} {
		w.shards["cell-1"].do("SELECT sale.close(1, 's', $1)", user)
	}
}

// Each invariant is broken in a real shard or in the books, and is named; by the
// Sampler too, which looked before, where it promises that.
func TestEachBreachIsNamed(t *testing.T) {
	seen := map[verify.Invariant]bool{}
	for _, c := range all() {
		seen[c.i] = true
		t.Run(string(c.i)+" "+c.name, func(t *testing.T) {
			w := newWorld(t)
			s := verify.NewSampler(w, w.reader, "c", true)
			first, err := s.Sample(testkit.Deadline(t))
			if err != nil || !first.Holds() || !first.Exact[key] || first.Open[key] {
				t.Fatalf("%+v, %v", first, err)
			}
			c.how(w)
			if c.name == "a changed ledger entry" { // seen as it grows, not afterwards: a new Sampler reads it all
				s = verify.NewSampler(w, w.reader, "c", true)
			}
			if got, err := s.Sample(testkit.Deadline(t)); err != nil || c.sampled && verdict(got.Result, c.i) != verify.Broken {
				t.Errorf("sampled: %+v, %v", got.Result, err)
			}
			r := w.verify()
			if verdict(r, c.i) != verify.Broken || r.Holds() || !names(r, c.i, c.words...) {
				t.Fatalf("%s; %+v", verdict(r, c.i), r.Breaches)
			}
		})
	}
	for _, i := range verify.All {
		if !seen[i] {
			t.Errorf("nothing breaks %s", i)
		}
	}
}

func TestTheEndAddsUp(t *testing.T) {
	w := newWorld(t)
	end(w)
	if r := w.verify(); verdict(r, verify.I10) != verify.OK || !r.Holds() {
		t.Fatalf("%+v", r)
	}
	// A fenced cell whose units were never reclaimed: frozen, and named as that.
	if _, err := w.shards["cell-1"].fencer().Fence(t.Context(), "cell-1", 2, "dead"); err != nil {
		t.Fatal(err)
	}
	w.cut.Cells[0].State, w.cut.Cells[0].ProofID, w.cut.Cells[0].FenceVersion = core.CellFenced, "cell-1/2", 2
	if r := w.verify(); verdict(r, verify.I10) != verify.OK || !r.Holds() {
		t.Fatalf("frozen: %+v", r)
	}
	w.cut.Cells[0].Reclaimed = true // and the book still has them
	if r := w.verify(); verdict(r, verify.I10) != verify.Broken {
		t.Fatalf("reclaimed, and not in the book: %+v", r)
	}
	w.cut.Books[0].Settled = true // before the fence, which leaves such books alone
	if r := w.verify(); verdict(r, verify.I10) != verify.OK || !r.Holds() {
		t.Fatalf("settled: %+v", r)
	}
	if got, err := verify.NewSampler(w, w.reader, "c", true).Sample(testkit.Deadline(t)); err != nil || !got.Holds() {
		t.Fatalf("settled, sampled: %+v, %v", got.Result, err)
	}
	w.cut.Books[0].Settled = false
	w.cut.Campaigns[0].Spec.Reclaim = core.ReclaimNever
	if r := w.verify(); verdict(r, verify.I10) != verify.OK {
		t.Fatalf("never reclaimed: %+v", r)
	}
}

// The rows of a deleted campaign stay in the shards, and no book is missed.
func TestADeletedCampaignsRowsAreNoBreach(t *testing.T) {
	w := newWorld(t)
	w.cut.Books, w.cut.Campaigns = nil, nil
	if r := w.verify(); verdict(r, verify.I2) != verify.Broken || !names(r, verify.I2, "no book") {
		t.Fatalf("nobody deleted it: %+v", r)
	}
	w.cut.Deleted = map[ids.CampaignID]bool{"c": true}
	if r := w.verify(); !r.Holds() || verdict(r, verify.I2) != verify.OK {
		t.Errorf("%+v", r)
	}
}

// A campaign whose ledger has left its partition is verified as before, and what is broken
// in it is named.
func TestAnArchivedCampaignIsVerified(t *testing.T) {
	w := newWorld(t)
	end(w)
	for id, s := range w.shards {
		s.do("UPDATE cellquota.campaigns SET state = 'SETTLED', updated_at = now() - interval '2 days'")
		var step string
		for range 20 {
			if err := s.conn.QueryRow(t.Context(), "SELECT cellquota.archive_step('c', 86400, 3)").Scan(&step); err != nil || step == "ARCHIVED" {
				break
			}
		}
		if step != "ARCHIVED" {
			t.Fatalf("%s: %s", id, step)
		}
	}
	if r := w.verify(); !r.Holds() || len(r.Unchecked) > 0 || verdict(r, verify.I5) != verify.OK || verdict(r, verify.I10) != verify.OK {
		t.Fatalf("archived: %+v", r)
	}
	w.shards["cell-1"].unguarded("UPDATE cellquota.ledger_archive SET delta_available = delta_available + 1, after_available = after_available + 1 WHERE business_no = 'r-a0-s' AND action = 'RESERVE'")
	if r := w.verify(); !names(r, verify.I5, "cell-1", "entry") {
		t.Errorf("an archived entry was changed: %+v", r)
	}
}

func TestASilentShardIsUncheckedNotBroken(t *testing.T) {
	w := newWorld(t)
	if err := os.WriteFile(w.shards["cell-2"].file, []byte("postgres://cellquota_reader@127.0.0.1:1/none"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := w.verify()
	for _, i := range []verify.Invariant{verify.I2, verify.I3, verify.I4, verify.I5, verify.I7, verify.I8} {
		if got := verdict(r, i); got != verify.VerdictNoWord {
			t.Errorf("%s: %s, want UNCHECKED", i, got)
		}
	}
	if !r.Holds() || verdict(r, verify.I1) != verify.OK {
		t.Fatalf("%+v", r)
	}
}

func TestAShardOfAnotherCellIsNotBelieved(t *testing.T) {
	w := newWorld(t)
	w.shards["cell-2"].do("UPDATE cellquota.fence SET cell_id = 'cell-7'")
	r := w.verify()
	if verdict(r, verify.I2) != verify.VerdictNoWord || len(r.Unchecked) == 0 {
		t.Fatalf("%+v", r)
	}
}

// A book that moved between the two reads is read again; one that never stands
// still is unchecked.
func TestABookInMotionIsNotABreach(t *testing.T) {
	w := newWorld(t)
	moving := func(until int) {
		w.cuts = 0
		w.onCut = func(n int, cut *verify.Cut) {
			if n > until {
				return
			}
			cut.Books[0] = shift(cut.Books[0], 10) // would be a breach, were it to stand
			cut.Books[0].Version = int64(100 + n)
		}
	}
	moving(1)
	if r := w.verify(); !r.Holds() || verdict(r, verify.I2) != verify.OK {
		t.Fatalf("moved once: %+v", r)
	}
	moving(1000)
	if r := w.verify(); !r.Holds() || verdict(r, verify.I2) != verify.VerdictNoWord || verdict(r, verify.I3) != verify.VerdictNoWord {
		t.Fatalf("kept moving: %+v", r)
	}
}

// A mirror that is not quiet, lost, or asked of nobody is skipped.
func TestMirrorsThatAreNotQuietAreSkipped(t *testing.T) {
	for name, m := range map[string]verify.MirrorFacts{
		"outstanding": {Present: true, FenceVersion: 1, Stock: 1, Outstanding: 1}, "stream": {Present: true, FenceVersion: 1, Stock: 1, Stream: 1},
		"lost": {}, "of an older fence version": {Present: true, Stock: 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.mirrors["cell-1"] = m
			if r := w.verify(); verdict(r, verify.I9) != verify.Skipped || !r.Holds() {
				t.Fatalf("%+v", r)
			}
		})
	}
	w := newWorld(t) // a parked admission of its build is not the mirror's loss
	w.shards["cell-1"].do("UPDATE cellquota.inbox SET outcome = 'PARKED' WHERE user_id = 'a5'")
	w.shards["cell-1"].do("INSERT INTO cellquota.parked (topic, topic_id, partition, kafka_offset, error_class, value, parked_at) VALUES ('t', 'i', 0, 0, '22', '', now())")
	w.mirrors["cell-1"] = verify.MirrorFacts{Present: true, FenceVersion: 1, Build: "1.1", Stock: 34}
	if r := w.verify(); verdict(r, verify.I9) != verify.OK || !r.Holds() {
		t.Fatalf("parked: %+v", r)
	}
	w.shards["cell-1"].do("UPDATE cellquota.parked SET kafka_offset = 99") // nobody knows whose
	if r := w.verify(); verdict(r, verify.I9) != verify.Skipped || !strings.Contains(fmt.Sprint(r.Checks), "c/s of cell-1: 1 parked messages are of nobody") {
		t.Fatalf("parked by nobody: %+v", r)
	}
	w = newWorld(t)
	w.mirrors["cell-1"] = verify.MirrorFacts{Present: true, FenceVersion: 1, Stock: 1}
	w.shards["cell-1"].do("INSERT INTO cellquota.outbox (target, aggregate, event_type, campaign_id, sku_id, payload, state, created_at) VALUES ('MIRROR', 'a', 'e', 'c', 's', '', 'PENDING', now())")
	if r := w.verify(); verdict(r, verify.I9) != verify.Skipped || !r.Holds() {
		t.Fatalf("an effect under way: %+v", r)
	}
}

// A campaign whose scope is itself: one order over all its SKUs.
func TestTheScopeOfTheCampaignCounts(t *testing.T) {
	w := newWorld(t)
	w.shards["cell-1"].do("SELECT sale.rules(1, 't')")
	w.shards["cell-1"].do("SELECT sale.adjust(1, 't', 'gt', 1, 'GRANT', 3, 'r')")
	w.shards["cell-1"].do("SELECT sale.sell(1, 't', 'a0')")
	q := quantity.Must
	w.cut.Books = append(w.cut.Books, core.Book{
		Key: core.BookKey{Campaign: "c", SKU: "t"}, SaleLimit: q(3), Version: 1, LastRecordID: "p",
		Allocations: []core.Allocation{{Cell: "cell-1", Granted: q(3), FenceVersion: 1, State: core.CellActive}},
	})
	if r := w.verify(); !r.Holds() {
		t.Fatalf("by SKU: %+v", r.Breaches)
	}
	w.cut.Campaigns[0].Spec.Scope = core.ScopeCampaign
	if r := w.verify(); !names(r, verify.I4, "a0", "o-a0-s", "o-a0-t") {
		t.Fatalf("by campaign: %+v", r.Breaches)
	}
}

func TestTheSamplerReadsOnlyWhatGrew(t *testing.T) {
	w := newWorld(t)
	s := verify.NewSampler(w, w.reader, "c", true)
	for i := range 3 {
		w.sell("cell-2", string(rune('p'+i)), 4, 1)
		got, err := s.Sample(testkit.Deadline(t))
		if err != nil || !got.Holds() || !got.Exact[key] {
			t.Fatalf("sample %d: %+v, %v", i, got.Result, err)
		}
	}
	// A grant that the book made and no shard has: open, so not exact, and no breach.
	w.cut.Books[0] = grow(w.cut.Books[0], 5)
	w.cut.Open[key] = true
	got, err := s.Sample(testkit.Deadline(t))
	if err != nil || !got.Holds() || got.Exact[key] || !got.Open[key] {
		t.Fatalf("%+v, %v", got, err)
	}
	delete(w.cut.Open, key)
	if got, _ = s.Sample(testkit.Deadline(t)); !names(got.Result, verify.I3, "nothing is under way") {
		t.Fatalf("units that nobody answers for: %+v", got.Result)
	}
	if s.Samples() != 5 {
		t.Fatal(s.Samples())
	}
	// A row that moved without its entry shows at once.
	w.cut.Books[0] = grow(w.cut.Books[0], -5)
	w.shards["cell-1"].do("UPDATE cellquota.stock SET available = available - 1, reserved = reserved + 1")
	if got, _ = s.Sample(testkit.Deadline(t)); !names(got.Result, verify.I5, "cell-1", "the ledger ends at") {
		t.Fatalf("%+v", got.Result)
	}
}

// grow moves n units from the reserve to cell-1's allocation.
func grow(b core.Book, n int64) core.Book { return shift(b, -n) }

// TestAFenceWithinOneSampleIsNoBreach: the books are read, then the cell is fenced and sealed, then the
// shards and the books are read again. The units that left the shard are still the book's.
func TestAFenceWithinOneSampleIsNoBreach(t *testing.T) {
	w := newWorld(t)
	s := verify.NewSampler(w, w.reader, "c", true)
	if first, err := s.Sample(testkit.Deadline(t)); err != nil || !first.Holds() {
		t.Fatalf("%+v, %v", first, err)
	}
	if _, err := w.shards["cell-1"].fencer().Fence(t.Context(), "cell-1", 2, "dead"); err != nil {
		t.Fatal(err)
	}
	reads := w.cuts
	w.onCut = func(n int, cut *verify.Cut) {
		cut.Cells = append([]core.Cell(nil), cut.Cells...)
		if n > reads+1 {
			cut.Cells[0].State, cut.Cells[0].FenceVersion = core.CellFencing, 2
		}
	}
	got, err := s.Sample(testkit.Deadline(t))
	if err != nil || !got.Holds() || !got.Open[key] || got.Exact[key] {
		t.Errorf("%+v open %v exact %v, %v", got.Result, got.Open, got.Exact, err)
	}
	// With no fence anywhere the same shards are a breach.
	w.onCut = nil
	if got, err := s.Sample(testkit.Deadline(t)); err != nil || got.Holds() {
		t.Errorf("units that nobody sealed are gone, and nobody noticed: %+v, %v", got.Result, err)
	}
}
