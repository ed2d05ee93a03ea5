package reclaim_test

import (
	"errors"
	"testing"
	"time"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/reclaim"
	"github.com/cellquota/cellquota/controlplane/store"
)

// A cell that sold units of a campaign that has settled, or was deleted since, is fenced for another reason:
// its shard keeps the rows, and nothing of them is anybody's to give. The reclaim goes on without them.
func TestWhatHasSettledIsNotReclaimed(t *testing.T) {
	for name, end := range map[string]func(tx *store.Tx) error{
		"settled": func(tx *store.Tx) error {
			book, _, err := tx.Book(key)
			if err != nil {
				return err
			}
			settled := core.SettledRecordID(key)
			_, _, err = tx.Record(settled)
			book.Settled = true
			book.Version++
			return errors.Join(err, tx.PutBook(book.Stamp(settled)), tx.PutRecord(core.Record{ID: settled, Key: key, Actor: "settle", BookVersion: book.Version, At: time.Now(), Parameters: "p"}))
		},
		"deleted": func(tx *store.Tx) error {
			_, _, e1 := tx.Book(key)
			_, _, e2 := tx.Campaign("c")
			_, _, e3 := tx.Tombstone("c")
			return errors.Join(e1, e2, e3, tx.DropBook(key), tx.DropCampaign("c"), tx.PutTombstone(core.Tombstone{Campaign: "c", OperationID: "d", DeletedAt: time.Now()}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t).publish()
			w.shards["cell-1"].do("SELECT sale.sell(1, 's', 'a')")
			w.shards["cell-1"].do("SELECT sale.pay(1, 's', 'a')")
			w.update(end)
			w.fence(reclaim.FenceOrder{Cell: "cell-1", OperationID: "f1", Reclaim: true, Force: true})
			w.done("f1")
			if !w.cell("cell-1").Reclaimed {
				t.Errorf("%+v", w.cell("cell-1"))
			}
			if name == "settled" && w.granted("cell-1") != 30 {
				t.Errorf("the book of a settled SKU moved: %d", w.granted("cell-1"))
			}
		})
	}
}
