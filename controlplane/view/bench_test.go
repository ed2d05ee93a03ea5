package view_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
)

var sizes = []int{10, 100, 1_000}

// published is what a publish over n cells leaves in etcd.
func published(s *script, n int) []store.Entry {
	key := core.BookKey{Campaign: "c", SKU: "s"}
	book := core.Book{Key: key, SaleLimit: quantity.Must(int64(n)), Version: 1, LastRecordID: "publish"}
	record := core.Record{ID: "publish", Key: key, BookVersion: 1, CreateRevision: 1}
	entries := []store.Entry{}
	for i := range n {
		cell := ids.CellID(fmt.Sprintf("cell-%04d", i))
		entries = append(entries, store.Entry{Key: s.Key(store.KindCell, string(cell)), Kind: store.KindCell, Value: core.Cell{Spec: core.CellSpec{ID: cell}, State: core.CellActive}})
		book.Allocations = append(book.Allocations, core.Allocation{Cell: cell, Granted: quantity.Must(1), FenceVersion: 1, LastNumber: 1, State: core.CellActive})
		record.Adjustments = append(record.Adjustments, core.Adjustment{
			ID: core.FirstGrantID(key, cell), Key: key, Cell: cell, Kind: core.KindGrant, Units: quantity.Must(1), State: core.StateBooked, Step: core.Step{FenceVersion: 1, Number: 1},
		})
	}
	return append(entries,
		store.Entry{Key: s.Key(store.KindBook, key.String()), Kind: store.KindBook, Value: book},
		store.Entry{Key: s.Key(store.KindRecord, record.ID), Kind: store.KindRecord, Value: record})
}

// follow runs a view of a source until the benchmark's end.
func follow(b *testing.B, s *script) *view.View {
	b.Helper()
	v, err := view.New(s, view.Deps{Clock: clock.System()})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = v.Run(ctx) }()
	b.Cleanup(func() { cancel(); <-done })
	return v
}

// BenchmarkViewApply: a batch that changes the book of n cells and the record of n
// adjustments, as every booking of answers to a publish does.
func BenchmarkViewApply(b *testing.B) {
	testkit.Linear(b, "cells", sizes, func(b *testing.B, n int) {
		s := newScript()
		entries := published(s, n)
		for _, e := range entries {
			s.rows[e.Key] = e
		}
		v := follow(b, s)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		changes := entries[len(entries)-2:]
		revision := s.rev
		for b.Loop() {
			revision++
			s.batches <- step{batch: store.Batch{Revision: revision, Entries: changes}}
			if _, err := v.WaitFor(ctx, revision); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkViewLoad: everything anew, as after a lost watch.
func BenchmarkViewLoad(b *testing.B) {
	testkit.Linear(b, "cells", sizes, func(b *testing.B, n int) {
		s := newScript()
		for _, e := range published(s, n) {
			s.rows[e.Key] = e
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		for b.Loop() {
			v, err := view.New(s, view.Deps{Clock: clock.System()})
			if err != nil {
				b.Fatal(err)
			}
			running, stop := context.WithCancel(ctx)
			done := make(chan struct{})
			go func() { defer close(done); _ = v.Run(running) }()
			if _, err := v.WaitFor(ctx, 1); err != nil {
				b.Fatal(err)
			}
			stop()
			<-done
		}
	})
}

// BenchmarkJournalPage: one page of 100 records of a campaign, the last of it, whose
// journal has so many. It must not depend on the journal's length: x-of-linear falls.
func BenchmarkJournalPage(b *testing.B) {
	testkit.Linear(b, "records", []int{100, 1_000, 10_000}, func(b *testing.B, n int) {
		s := newScript()
		for i := range n {
			record := core.Record{ID: fmt.Sprintf("r-%06d", i), Key: core.BookKey{Campaign: "c", SKU: "s"}, CreateRevision: int64(i + 1), Adjustments: []core.Adjustment{{ID: fmt.Sprint("a-", i)}}}
			s.rows["/"+record.ID] = store.Entry{Key: s.Key(store.KindRecord, record.ID), Kind: store.KindRecord, Value: record}
		}
		v := follow(b, s)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		snapshot, err := v.WaitFor(ctx, 1)
		if err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			if got := snapshot.Records("c", int64(n)+1, 100); len(got) != 100 {
				b.Fatal(len(got))
			}
		}
	})
}
