package store_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
)

// longest gives a name of the given length that ends in a number.
func longest(n, i int) string {
	digits := fmt.Sprint(i)
	return strings.Repeat("x", n-len(digits)) + digits
}

// TestTheLargestValues: with every name as long as names may be, what 1,000 cells make
// of one value stays below its bound of 1 MiB, and all of it goes into etcd. The sizes
// are in docs/reference/performance.md.
func TestTheLargestValues(t *testing.T) {
	const n = 1_000
	p := open(t)
	key := core.BookKey{Campaign: ids.CampaignID(longest(63, 0)), SKU: ids.SKUID(longest(64, 0))}
	book := core.Book{Key: key, SaleLimit: quantity.Must(quantity.Max), Reserve: quantity.Must(quantity.Max - n*900_000), LastRecordID: longest(128, 0), Version: 1 << 40}
	record := core.Record{ID: core.PublishRecordID(key), Key: key, Actor: longest(128, 0), Reason: longest(1024, 0), OperationID: longest(128, 0), BookVersion: 1 << 40, At: time.Now(), Parameters: longest(64, 0)}
	op := core.Operation{ID: longest(128, 1), Kind: core.OperationRebalance, Subject: key.String(), State: core.OperationRunning, Actor: longest(128, 0), Reason: longest(1024, 0), StartedAt: time.Now()}
	var ranges []allocator.Range
	for i := range n {
		cell := ids.CellID(longest(63, i+1000))
		book.Allocations = append(book.Allocations, core.Allocation{
			Cell: cell, Granted: quantity.Must(900_000), FenceVersion: 1 << 30, LastNumber: 1 << 30, CellVersion: 1 << 30, State: core.CellActive, FirstGrant: quantity.Must(900_000),
		})
		record.Adjustments = append(record.Adjustments, core.Adjustment{
			ID: core.FirstGrantID(key, cell), Key: key, Cell: cell, Kind: core.KindGrant, Units: quantity.Must(900_000), State: core.StateBooked,
			Step: core.Step{FenceVersion: 1 << 30, Number: 1 << 30}, Actor: record.Actor, Reason: "publish", CreatedAt: record.At,
		})
		op.Moves = append(op.Moves, core.RebalanceMove{
			SKU: key.SKU, From: cell, To: cell, Units: quantity.Must(900_000),
			Why: fmt.Sprintf("%s has 1000000000 and needs 1000000000 within 1m0s; %s has 1000000000 and needs 1000000000", cell, cell),
		})
	}
	for i := range allocator.Buckets { // as fragmented as can be
		ranges = append(ranges, allocator.Range{From: uint16(i), To: uint16(i), Cell: longest(63, i%n+1000)})
	}
	homes, err := allocator.NewHomeMap(allocator.Buckets, ranges)
	if err != nil {
		t.Fatal(err)
	}
	route := core.Route{Campaign: key.Campaign, Version: 1, Domains: []core.DomainRoute{{Homes: homes}}}
	for _, middle := range []func(*store.Tx) error{
		func(tx *store.Tx) error { // as one transaction opens a book
			_, _, e1 := tx.Book(key)
			_, _, e2 := tx.Record(record.ID)
			return errors.Join(e1, e2, tx.PutBook(book), tx.PutRecord(record))
		},
		func(tx *store.Tx) error {
			_, _, err := tx.Operation(op.ID)
			return errors.Join(err, tx.PutOperation(op))
		},
		func(tx *store.Tx) error {
			_, _, err := tx.Route(route.Campaign)
			return errors.Join(err, tx.PutRoute(route))
		},
	} {
		if _, err := p.Update(testkit.Deadline(t), "put", middle); err != nil {
			t.Fatal(err)
		}
	}
	for what, room := range map[string]string{"book": "/books/", "record": "/journal/", "operation": "/operations/", "route": "/routes/"} {
		got, err := p.client.Get(testkit.Deadline(t), prefix+room, clientv3.WithPrefix())
		if err != nil || len(got.Kvs) != 1 {
			t.Fatalf("%s: %d values, %v", what, len(got.Kvs), err)
		}
		t.Logf("%s: %d bytes", what, len(got.Kvs[0].Value))
		if size := len(got.Kvs[0].Value); size < 50_000 || size > 1<<20 {
			t.Errorf("%s of %d bytes", what, size)
		}
	}
}
