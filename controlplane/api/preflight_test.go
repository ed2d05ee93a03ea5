package api_test

import (
	"strings"
	"testing"

	"github.com/cellquota/cellquota/controlplane/access"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/testkit"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// TestPreflight: a row for each process; ready when each serves the newest version; what is missing, a
// process that does not know the call and a cell without a process are rows with a fault.
func TestPreflight(t *testing.T) {
	p := newPlant(t)
	ctx, viewer := testkit.Deadline(t), p.as(access.Viewer)
	shadow := func(version int64) *pb.ShadowResponse {
		return &pb.ShadowResponse{InstanceId: "p1", Version: version, ServedVersion: version, Library: "cellquota_v2", LibraryLoaded: true, Skus: []*pb.ShadowSku{
			{SkuId: "s", MirrorReady: true, Build: &pb.Build{FenceVersion: 1, Count: 4}}, {SkuId: "t", MirrorReady: true, Build: &pb.Build{FenceVersion: 1, Count: 2}},
		}}
	}
	ask := func() *pb.PreflightCampaignResponse {
		t.Helper()
		out, err := viewer.Campaigns.PreflightCampaign(ctx, &pb.PreflightCampaignRequest{CampaignId: "c"})
		if err != nil || len(out.GetRows()) != 2 || out.GetVersion() != 2 {
			t.Fatalf("%v, %v", out, err)
		}
		return out
	}
	p.mirrors["cell-1"].shadow, p.mirrors["cell-2"].shadow = shadow(2), shadow(2)
	if out := ask(); !out.GetReady() || out.GetRows()[0].GetCellId() != "cell-1" || out.GetRows()[0].GetBuild().GetCount() != 2 || out.GetRows()[0].GetKind() != "cell" {
		t.Errorf("all is well: %v", out)
	}
	late := shadow(1)
	late.Faults = []string{"SKU s: the mirror is being built"}
	p.mirrors["cell-1"].mu.Lock()
	p.mirrors["cell-1"].shadow = late
	p.mirrors["cell-1"].mu.Unlock()
	out := ask()
	if row := out.GetRows()[0]; out.GetReady() || row.GetReady() || strings.Join(row.GetFaults(), "; ") != "SKU s: the mirror is being built; serves version 1, the newest is 2" || !out.GetRows()[1].GetReady() {
		t.Errorf("one is late: %v", out)
	}
	if err := p.store.RevokeLease(ctx, p.mirrors["cell-1"].lease); err != nil {
		t.Fatal(err)
	}
	p.caughtUp()
	if row := ask().GetRows()[0]; row.GetReady() || row.GetInstanceId() != "" || !strings.Contains(row.GetFaults()[0], "no process") {
		t.Errorf("without a process: %v", row)
	}
	p.write(func(tx *store.Tx) error { // a process that is registered and not there
		cell, _, err := tx.Cell("cell-2")
		if err != nil {
			return err
		}
		_, err = p.store.Register(ctx, p.leader, core.Instance{Cell: "cell-1", ID: "gone", Group: cell.InstanceGroup, Address: "127.0.0.1:1", Lease: p.mirrors["cell-2"].lease}, func(core.Cell) error { return nil })
		return err
	})
	p.caughtUp()
	if row := ask().GetRows()[0]; row.GetReady() || row.GetInstanceId() != "gone" || !strings.Contains(row.GetFaults()[0], "does not answer") {
		t.Errorf("a silent process: %v", row)
	}
}
