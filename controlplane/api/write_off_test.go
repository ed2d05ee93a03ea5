package api_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cellquota/cellquota/controlplane/access"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/intent"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/testkit"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// gone takes a cell's processes and its shard away for good.
func (p *plant) gone(id ids.CellID) {
	p.t.Helper()
	p.unreachable(id)
	if err := os.WriteFile(p.dsns[id][1], []byte("postgres://cellquota_fencer@127.0.0.1:1/none"), 0o600); err != nil {
		p.t.Fatal(err)
	}
	if err := p.store.RevokeLease(testkit.Deadline(p.t), p.mirrors[id].lease); err != nil {
		p.t.Fatal(err)
	}
	p.caughtUp()
}

// K08, R-126: a cell whose shard is gone for good, over the wire: refused while it is
// SUSPECT, previewed, approved by a second person, RETIRED; then the account says
// WRITTEN_OFF, verify has nothing left to wait for, and I1 holds.
func TestK08WriteOffOverTheWire(t *testing.T) {
	p := newPlant(t)
	ctx, sre := testkit.Deadline(t), p.as(access.SRE)
	off := func(id string, dry bool) *pb.ReclaimCellRequest {
		return &pb.ReclaimCellRequest{CellId: "cell-1", OperationId: id, WriteOff: true, ValidateOnly: dry, Reason: "burnt"}
	}
	p.exec("cell-1", "SELECT sale.sell(1, 's', 'u1')")
	if _, err := sre.Fences.ReclaimCell(ctx, off("w0", false)); rpcstatus.Reason(err) != "FENCE_FIRST" {
		t.Fatalf("an ACTIVE cell: %v", err)
	}
	address, err := os.ReadFile(p.dsns["cell-1"][0])
	if err != nil {
		t.Fatal(err)
	}
	p.gone("cell-1")
	if _, err := sre.Fences.ReclaimCell(ctx, off("w0", true)); rpcstatus.Reason(err) != "FENCE_FIRST" {
		t.Fatalf("a SUSPECT cell: %v", err)
	}
	both := off("w0", false)
	both.TopUp = true
	if _, err := sre.Fences.ReclaimCell(ctx, both); !slices.Contains(violated(err), "top_up") {
		t.Fatalf("with top_up: %v", err)
	}
	if _, err := p.as(access.CampaignManager).Fences.ReclaimCell(ctx, off("w0", false)); status.Code(err) != codes.PermissionDenied {
		t.Fatalf("by a campaign manager: %v", err)
	}
	if _, err := sre.Fences.FenceCell(ctx, &pb.FenceCellRequest{CellId: "cell-1", OperationId: "f1", Reason: "dark"}); err != nil {
		t.Fatal(err)
	}
	preview, err := sre.Fences.ReclaimCell(ctx, off("", true))
	if err != nil || len(preview.GetWrittenOff()) != 1 || preview.GetWrittenOff()[0].GetUnits() != 40 || preview.GetOperation() != nil {
		t.Fatalf("%v, %v", preview, err)
	}
	got, err := sre.Fences.ReclaimCell(ctx, off("w1", false))
	if err != nil || got.GetOperation().GetKind() != "write-off-cell" || !strings.Contains(got.GetOperation().GetDetail(), "second person") {
		t.Fatalf("%v, %v", got, err)
	}
	people := &intent.Service{Store: p.store, View: p.view, Clock: clock.System(), ApprovalTTL: time.Hour}
	if _, err := people.Approve(ctx, intent.Caller{Name: "sre-bob", Method: "test"}, "w1", "saw it"); err != nil {
		t.Fatal(err)
	}
	if op := p.done("w1"); op.State != core.OperationDone {
		t.Fatalf("%s %s", op.State, op.Detail)
	}
	account, err := sre.Reports.GetUndersell(ctx, &pb.GetUndersellRequest{CampaignId: "c"})
	if err != nil || len(account.GetUnreachable()) != 0 {
		t.Fatalf("%v, %v", account, err)
	}
	written := slices.ContainsFunc(account.GetSkus()[0].GetCells(), func(u *pb.CauseUnits) bool {
		return u.GetCause() == pb.UndersellCause_UNDERSELL_CAUSE_WRITTEN_OFF && u.GetCellId() == "cell-1" && u.GetUnits() == 40
	})
	if !written {
		t.Errorf("the account: %v", account)
	}
	v, err := sre.Reports.Verify(ctx, &pb.VerifyRequest{CampaignId: "c"})
	if err != nil || !v.GetOk() {
		t.Errorf("verify: %v, %v", v, err)
	}
	st, err := sre.Reports.GetStatus(ctx, &pb.GetStatusRequest{})
	if err != nil || st.GetFrozenUnits() != 0 || st.GetCells()[0].GetState() != pb.CellState_CELL_STATE_RETIRED {
		t.Errorf("%v, %v", st, err)
	}
	// The shard is back, was never fenced and sells on what was written off: it breaks nothing.
	if err := os.WriteFile(p.dsns["cell-1"][0], address, 0o600); err != nil {
		t.Fatal(err)
	}
	p.exec("cell-1", "SELECT sale.sell(1, 's', 'u2')")
	if v, err = sre.Reports.Verify(ctx, &pb.VerifyRequest{CampaignId: "c"}); err != nil || !v.GetOk() {
		t.Errorf("verify with the shard back: %v, %v", v, err)
	}
}

// TestDeadCellRunbookWriteOff follows step 7 of the page: each of its commands has a row
// here, and they are carried out, as the calls that they make, in the page's order.
func TestDeadCellRunbookWriteOff(t *testing.T) {
	page, err := os.ReadFile("../../docs/runbooks/dead-cell.md")
	if err != nil {
		t.Fatal(err)
	}
	_, step, found := strings.Cut(string(page), "## 7. ")
	step, _, ends := strings.Cut(step, "\n## ")
	if !found || !ends {
		t.Fatal("the page has no step 7")
	}
	p := newPlant(t)
	ctx, sre := testkit.Deadline(t), p.as(access.SRE)
	p.gone("cell-1")
	if _, err := sre.Fences.FenceCell(ctx, &pb.FenceCellRequest{CellId: "cell-1", OperationId: "f1", Reason: "dark"}); err != nil {
		t.Fatal(err)
	}
	off := func(id string, dry bool) error {
		_, err := sre.Fences.ReclaimCell(ctx, &pb.ReclaimCellRequest{CellId: "cell-1", OperationId: id, WriteOff: true, ValidateOnly: dry, Reason: "burnt"})
		return err
	}
	people := &intent.Service{Store: p.store, View: p.view, Clock: clock.System(), ApprovalTTL: time.Hour}
	calls := map[string]func() error{
		"cell get cell-2": func() error { _, err := p.store.Cell(ctx, "cell-1"); return err },
		"cell reclaim cell-2 --write-off --dry-run":            func() error { return off("", true) },
		"cell reclaim cell-2 --write-off --no-wait --reason '": func() error { return off("w1", false) },
		"approval list --pending": func() error {
			p.caughtUp()
			if a, asked := p.view.Snapshot().Approval("w1"); !asked || a.State != core.ApprovalPending {
				return fmt.Errorf("nothing to approve: %+v", a)
			}
			return nil
		},
		"approval approve ID --reason '": func() error {
			_, err := people.Approve(ctx, intent.Caller{Name: "sre-bob", Method: "test"}, "w1", "saw it")
			return err
		},
		"op wait ID": func() error {
			if op := p.done("w1"); op.State != core.OperationDone {
				return fmt.Errorf("%s %s", op.State, op.Detail)
			}
			return nil
		},
		"undersell night": func() error {
			_, err := sre.Reports.GetUndersell(ctx, &pb.GetUndersellRequest{CampaignId: "c"})
			return err
		},
		"verify": func() error { _, err := sre.Reports.Verify(ctx, &pb.VerifyRequest{}); return err },
	}
	done := 0
	for _, m := range regexp.MustCompile("(?m)^cellctl ([^'\n]*'?)").FindAllStringSubmatch(step, -1) {
		call, known := calls[m[1]]
		if !known {
			t.Errorf("the page shows cellctl %s: it lacks a row here", m[1])
			continue
		}
		if err := call(); err != nil {
			t.Errorf("cellctl %s: %v", m[1], err)
		}
		done++
	}
	if cell, _ := p.store.Cell(ctx, "cell-1"); done != len(calls) || cell.State != core.CellRetired {
		t.Errorf("%d of %d commands are on the page; the cell is %s", done, len(calls), cell.State)
	}
}
