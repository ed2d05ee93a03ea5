package admission

import (
	_ "embed"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/cellquota/cellquota/internal/testkit"
)

// oldLibrary is the text of the library before this one, as its programs load it.
//
//go:embed testdata/cellquota_v1.lua
var oldLibrary string

// ofOld is a function as a program of the version before calls it.
func ofOld[In, Out any](f function[In, Out]) function[In, Out] {
	f.name = strings.Replace(f.name, "cq2_", "cq1_", 1)
	return f
}

// admitOld admits as a process of the version before does.
func (m *mirror) admitOld(t *testing.T, c *Client, a Ask) Result {
	t.Helper()
	call, err := c.prepare(a, build1)
	if err != nil {
		t.Fatal(err)
	}
	out, err := ofOld(admitFunction).one(testkit.Deadline(t), c, c.hot, call)
	return call.finish(out, err)
}

// An upgrade: the old and the new process of a cell serve side by side, each with its own library, on
// one mirror. Each replays what the other admitted, and an effect counts once, whoever applies it.
func TestTwoLibrariesSideBySide(t *testing.T) {
	m := newMirror(t, image(skuScope, build1))
	ctx := testkit.Deadline(t)
	if err := m.raw.FunctionLoad(ctx, oldLibrary).Err(); err != nil {
		t.Fatal(err)
	}
	old, _ := openClient(t, m.server.Addr(), Standalone)
	if _, err := old.Acknowledge(ctx); err != nil {
		t.Fatal(err)
	}
	ann := want(t, m.admitOld(t, old, ask("ann", "r1")), Accepted)
	bob := want(t, m.one(ctx, ask("bob", "r1")), Accepted)
	if r := want(t, m.one(ctx, ask("ann", "r1")), Replayed); r.Reservation != ann.Reservation {
		t.Fatalf("the new program knows ann's as %s", r.Reservation)
	}
	if r := want(t, m.admitOld(t, old, ask("bob", "r1")), Replayed); r.Reservation != bob.Reservation {
		t.Fatalf("the old program knows bob's as %s", r.Reservation)
	}
	want(t, m.one(ctx, ask("ann", "r2")), AlreadyReserved)
	want(t, m.admitOld(t, old, ask("bob", "r2")), AlreadyReserved)

	back := Return{Scope: skuScope, SKU: testSKU, AdjustmentID: "a1", Number: 3, Units: 2}
	if r, err := ofOld(debitFunction).one(ctx, old, old.maint, returnCall{back.Scope, build1, back.SKU, back.AdjustmentID, back.Units, back.Number}); err != nil || r.Change != Applied {
		t.Fatalf("%s %v", r.Change, err)
	}
	if r, err := m.DebitReturn(ctx, back); err != nil || r.Change != Already {
		t.Fatalf("%s %v", r.Change, err)
	}
	if s := m.stock(t, skuScope, testSKU); s != 6 {
		t.Fatalf("stock %d, want 6: two customers and a return of 2", s)
	}
	// A check by either leaves the other's library alone.
	if err := m.Check(ctx); err != nil {
		t.Fatal(err)
	}
	have, err := m.raw.FunctionList(ctx, redis.FunctionListQuery{}).Result()
	if err != nil || len(have) != 2 {
		t.Fatalf("%d libraries, %v", len(have), err)
	}
}

// K61: the functions are flushed twenty times under load. Every customer is accepted, once.
func TestFunctionsFlushedUnderLoad(t *testing.T) {
	const each, clerks, flushes = 60, 4, 20
	im := image(skuScope, build1)
	im.Stocks[0].Available = each * clerks
	m := newMirror(t, im)
	ctx := testkit.Deadline(t)
	var wait sync.WaitGroup
	done := make(chan struct{}, each*clerks)
	for clerk := range clerks {
		wait.Go(func() {
			for i := range each {
				if r := m.one(ctx, ask(fmt.Sprintf("u%d.%d", clerk, i), "r1")); r.Outcome != Accepted || r.Err != nil {
					t.Errorf("%s %v", r.Outcome, r.Err)
				}
				done <- struct{}{}
			}
		})
	}
	wait.Go(func() {
		for range flushes {
			for range each * clerks / flushes { // a flush after every so many answers
				<-done
			}
			if err := m.raw.FunctionFlush(ctx).Err(); err != nil {
				t.Error(err)
			}
			if err := m.raw.ScriptFlush(ctx).Err(); err != nil {
				t.Error(err)
			}
		}
	})
	wait.Wait()
	f, err := m.Facts(ctx, skuScope, testSKU)
	if err != nil || f.Stock != 0 || f.Admitted != each*clerks || f.StreamLength != each*clerks {
		t.Fatalf("%+v %v", f, err)
	}
	if name, loaded, err := m.Loaded(ctx); err != nil || !loaded {
		t.Fatalf("%s loaded: %t %v", name, loaded, err)
	}
}
