package verify_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/cell/shard/migrate"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/report/shards"
	"github.com/cellquota/cellquota/controlplane/report/verify"
	"github.com/cellquota/cellquota/fencing/fencer"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
)

var key = core.BookKey{Campaign: "c", SKU: "s"}

// world is two real shards with 40 units each of a limit of 100, and a control
// plane whose cut the test owns.
type world struct {
	t       *testing.T
	shards  map[ids.CellID]*shard
	cut     verify.Cut
	onCut   func(n int, cut *verify.Cut) // changes what the n-th Cut answers
	cuts    int
	mirrors map[ids.CellID]verify.MirrorFacts
	reader  *shards.Reader
}

type shard struct {
	t    *testing.T
	db   *testkit.Database
	conn *pgx.Conn
	file string
}

// Cut implements verify.Plane.
func (w *world) Cut(context.Context, ids.CampaignID) (verify.Cut, error) {
	cut := w.cut
	cut.Books = append([]core.Book(nil), w.cut.Books...)
	w.cuts++
	if w.onCut != nil {
		w.onCut(w.cuts, &cut)
	}
	return cut, nil
}

// Mirror implements verify.Mirrors.
func (w *world) Mirror(_ context.Context, cell ids.CellID, _ core.BookKey) (verify.MirrorFacts, error) {
	m, ok := w.mirrors[cell]
	if !ok {
		return verify.MirrorFacts{}, errors.New("nobody answers")
	}
	return m, nil
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldOf(t, core.InventoryCounter)
}

// newWorldOf is newWorld with its units kept as counters or as token rows.
func newWorldOf(t *testing.T, mode core.Inventory) *world {
	t.Helper()
	q := quantity.Must
	w := &world{t: t, shards: map[ids.CellID]*shard{}, mirrors: map[ids.CellID]verify.MirrorFacts{}, reader: shards.New(shards.Options{Timeout: 5 * time.Second})}
	t.Cleanup(w.reader.Close)
	book := core.Book{Key: key, SaleLimit: q(100), Reserve: q(20), Version: 1, LastRecordID: "publish"}
	for _, id := range []ids.CellID{"cell-1", "cell-2"} {
		s := newShard(t, id)
		w.shards[id] = s
		s.do("SELECT sale.rules(1, 's')")
		s.do("INSERT INTO cellquota.campaigns VALUES ('c', 1, 'PUBLISHED', now(), now() + interval '1 hour', 'SKU', '1 hour', '', now())")
		s.do("INSERT INTO cellquota.skus VALUES ('c', 's', 10, 'CNY', $1)", mode.String())
		s.do("SELECT sale.adjust(1, 's', $1, 1, 'GRANT', 40, 'publish')", "g-"+string(id))
		w.cut.Cells = append(w.cut.Cells, core.Cell{Spec: core.CellSpec{ID: id, Shard: core.ShardSpec{ReaderDSNFile: s.file}}, State: core.CellActive, FenceVersion: 1})
		book.Allocations = append(book.Allocations, core.Allocation{Cell: id, Granted: q(40), FenceVersion: 1, LastNumber: 1, State: core.CellActive})
	}
	w.cut.Revision, w.cut.Books = 7, []core.Book{book}
	w.cut.Campaigns = []core.Campaign{{
		Spec: core.CampaignSpec{
			ID: "c", Scope: core.ScopeSKU, OpenAt: time.Now().Add(-time.Hour), CloseAt: time.Now().Add(time.Hour), Reclaim: core.ReclaimManual,
			SKUs: []core.SKUSpec{{ID: "s", Inventory: mode}},
		},
		State: core.CampaignPublished, Version: 2,
	}}
	w.cut.Physical = []core.PhysicalStock{{SKU: "s", Units: q(100), Limits: map[ids.CampaignID]quantity.Quantity{"c": q(100)}, Version: 1}}
	w.cut.Open = map[core.BookKey]bool{}
	w.sell("cell-1", "a", 6, 2)
	w.sell("cell-2", "b", 5, 5)
	w.shards["cell-1"].do("SELECT sale.close(1, 's', 'a5')")
	return w
}

func newShard(t *testing.T, id ids.CellID) *shard {
	t.Helper()
	db := testkit.Postgres(t).Database(t, testkit.Template{Name: "sale", Setup: func(ctx context.Context, dsn string) error {
		sale, err := os.ReadFile("../shards/testdata/sale.sql")
		if err != nil {
			return err
		}
		if err := errors.Join(migrate.CreateRoles(ctx, dsn, migrate.Passwords{}), migrate.Up(ctx, dsn)); err != nil {
			return err
		}
		conn, err := pgx.Connect(ctx, dsn)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close(ctx) }()
		_, err = conn.Exec(ctx, string(sale))
		return err
	}})
	s := &shard{t: t, db: db, conn: db.Conn(t), file: filepath.Join(t.TempDir(), "reader")}
	if err := os.WriteFile(s.file, []byte(db.As(migrate.RoleReader)), 0o600); err != nil {
		t.Fatal(err)
	}
	f := s.fencer()
	if _, err := f.Install(t.Context(), string(id), "blue"); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *shard) fencer() *fencer.Fencer {
	s.t.Helper()
	f, err := fencer.Open(s.t.Context(), s.db.As(migrate.RoleFencer), fencer.Options{})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = f.Close(context.WithoutCancel(s.t.Context())) })
	return f
}

func (s *shard) do(sql string, args ...any) {
	s.t.Helper()
	if _, err := s.conn.Exec(s.t.Context(), sql, args...); err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
}

// unguarded runs statements without the constraints and triggers that would
// refuse them: what a defect of the database's own rules would leave behind.
func (s *shard) unguarded(statements ...string) {
	s.t.Helper()
	s.do("ALTER TABLE cellquota.stock DROP CONSTRAINT IF EXISTS i2_granted_is_the_sum")
	s.do("SET session_replication_role = replica") // no trigger fires in this session, on no partition
	for _, sql := range statements {
		s.do(sql)
	}
	s.do("RESET session_replication_role")
}

func (w *world) sell(cell ids.CellID, prefix string, n, paid int) {
	w.t.Helper()
	for i := range n {
		user := fmt.Sprintf("%s%d", prefix, i)
		w.shards[cell].do("SELECT sale.sell(1, 's', $1)", user)
		if i < paid {
			w.shards[cell].do("SELECT sale.pay(1, 's', $1)", user)
		}
	}
}

func (w *world) verify() verify.Result {
	w.t.Helper()
	r, err := verify.New(w, w.reader, w, clock.System()).Verify(testkit.Deadline(w.t), "c")
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// verdict of one invariant.
func verdict(r verify.Result, i verify.Invariant) verify.Verdict {
	for _, c := range r.Checks {
		if c.Invariant == i {
			return c.Verdict
		}
	}
	return ""
}

// names tells whether a breach of an invariant says all of the words.
func names(r verify.Result, i verify.Invariant, words ...string) bool {
	for _, b := range r.Breaches {
		text := fmt.Sprint(b)
		all := b.Invariant == i
		for _, word := range words {
			all = all && strings.Contains(text, word)
		}
		if all {
			return true
		}
	}
	return false
}
