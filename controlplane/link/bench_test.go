package link_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/link"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

var sizes = []int{10, 100, 1_000}

// cellsOf registers one process in each of n cells, over a stream of its own.
func (r *replica) cellsOf(n int) []*process {
	r.t.Helper()
	out := make([]*process, n)
	for i := range out {
		id := fmt.Sprintf("bench-%d", i)
		r.putCell(ids.CellID(id), func(*core.Cell) {})
		out[i] = r.join(hello(id, "p1"))
		out[i].beat(true)
	}
	return out
}

// BenchmarkReports: every cell reports one SKU, and the hub has heard all of them.
func BenchmarkReports(b *testing.B) {
	key := core.BookKey{Campaign: "c", SKU: "s"}
	testkit.Linear(b, "cells", sizes, func(b *testing.B, n int) {
		r := newReplica(b, link.Options{LeaseTTL: 10 * time.Minute})
		heard := make(chan struct{}, n)
		r.events.reported = func() { heard <- struct{}{} }
		processes := r.lead().cellsOf(n)
		version := int64(0)
		for b.Loop() {
			version++
			for _, p := range processes {
				p.send(&pb.LinkRequest{Kind: &pb.LinkRequest_Report{Report: &pb.Report{FenceVersion: 1, Usages: []*pb.UsageReport{{
					Stock:    &pb.StockFacts{CampaignId: "c", SkuId: "s", Granted: 100, Available: 100, Version: version},
					Admitted: version, Gate: pb.GateState_GATE_STATE_OPEN,
				}}}}})
			}
			for range processes {
				<-heard
			}
		}
		if u, known := r.hub.UsageOf("bench-0", key); !known || u.Stock.Version != version {
			b.Fatal("the hub has not heard it", u)
		}
	})
}

// BenchmarkCampaignReady: whether every cell serves a version, as a publish asks at
// each tick.
func BenchmarkCampaignReady(b *testing.B) {
	testkit.Linear(b, "cells", sizes, func(b *testing.B, n int) {
		r := newReplica(b, link.Options{LeaseTTL: 10 * time.Minute}).lead()
		r.cellsOf(n)
		var cells []ids.CellID
		for i := range n {
			cells = append(cells, ids.CellID(fmt.Sprintf("bench-%d", i)))
		}
		for b.Loop() {
			if missing := r.hub.CampaignReady("c", 1, cells); len(missing) != n {
				b.Fatal(len(missing))
			}
		}
	})
}
