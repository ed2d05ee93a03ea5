package settle_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/report/shards"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
)

// silent is a server that takes connections and says nothing; it gives the file that
// names it as a shard.
func silent(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		var open []net.Conn
		for {
			conn, err := l.Accept()
			if err != nil {
				for _, c := range open {
					_ = c.Close()
				}
				return
			}
			open = append(open, conn)
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	file := filepath.Join(t.TempDir(), "silent")
	if err := os.WriteFile(file, []byte(fmt.Sprintf("postgres://cellquota_reader@%s/none?sslmode=disable\n", l.Addr())), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// ended writes a campaign that is closed and whose one cell has this shard.
func (w *world) ended(id ids.CampaignID, cell ids.CellID, shard string) {
	w.t.Helper()
	w.update(func(tx *store.Tx) error {
		c, _, err := tx.Campaign("c")
		if err != nil {
			return err
		}
		c.Spec.ID, c.Spec.Cells, c.State, c.ClosedAt = id, []ids.CellID{cell}, core.CampaignClosed, time.Now().UTC()
		like, _, err := tx.Cell("cell-1")
		if err != nil {
			return err
		}
		like.Spec.ID, like.Spec.Shard.ReaderDSNFile = cell, shard
		at := core.BookKey{Campaign: id, SKU: "s"}
		book := core.Book{Key: at, SaleLimit: quantity.Must(10), Reserve: quantity.Must(0), Allocations: []core.Allocation{{
			Cell: cell, Granted: quantity.Must(10), FenceVersion: 1, LastNumber: 1, CellVersion: 1, State: core.CellActive, FirstGrant: quantity.Must(10),
		}}}
		_, _, e1 := tx.Campaign(id)
		_, _, e2 := tx.Cell(cell)
		_, _, e3 := tx.Book(at)
		return errors.Join(e1, e2, e3, tx.PutCampaign(c), tx.PutCell(like), tx.PutBook(book.Stamp("publish")))
	})
}

// A shard that hangs holds up its own campaign: another, whose shards answer, has its
// account taken in the same look, long before the hanging one is given up.
func TestAHangingShardHoldsUpItsOwnCampaignOnly(t *testing.T) {
	w := newWorld(t).over()
	w.ended("a", "cell-7", silent(t)) // "a" comes before "c"
	w.reader = shards.New(shards.Options{Timeout: 10 * wait})
	t.Cleanup(w.reader.Close)
	d := w.driver(w.store, w.archive)
	ctx, stop := context.WithCancel(testkit.Deadline(t))
	looked := make(chan struct{})
	go func() { defer close(looked); d.Tick(ctx, w.leader) }()
	defer func() { stop(); <-looked }()
	testkit.Eventually(t, wait, func() error {
		if _, reported := w.now().Report(); !reported {
			return errors.New("the account of c was not taken yet")
		}
		return nil
	})
	select {
	case <-looked:
		t.Error("the look is over: the shard of a did not hang")
	default:
	}
	if a, _ := w.view.Snapshot().Campaign("a"); len(a.Archive) > 0 {
		t.Errorf("the account of a was taken: %+v", a.Archive)
	}
}
