package api_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cellquota/cellquota/controlplane/access"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/handover"
	"github.com/cellquota/cellquota/controlplane/reclaim"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// TestDeadCellRunbookHandover follows step 5 of the page after a fence: each of its
// commands has a row here, and is carried out as the call that it makes.
func TestDeadCellRunbookHandover(t *testing.T) {
	page, err := os.ReadFile("../../docs/runbooks/dead-cell.md")
	if err != nil {
		t.Fatal(err)
	}
	_, step, found := strings.Cut(string(page), "## 5. ")
	step, _, ends := strings.Cut(step, "\n## ")
	if !found || !ends {
		t.Fatal("the page has no step 5")
	}
	p := newPlant(t)
	ctx, sre := testkit.Deadline(t), p.as(access.SRE)
	p.exec("cell-1", "INSERT INTO cellquota.buckets VALUES ('c', '', 0, 2047, 'OPEN', 1)") // as the rules of a publish deal them
	p.exec("cell-2", "INSERT INTO cellquota.buckets VALUES ('c', '', 2048, 4095, 'OPEN', 1)")
	for n, sold := 0, false; !sold; n++ {
		user := fmt.Sprint("u", n)
		if sold = ids.Bucket(ids.UserID(user)) < 2048; sold {
			p.exec("cell-1", "SELECT sale.sell(1, 's', $1)", user)
		}
	}
	if _, err := sre.Fences.FenceCell(ctx, &pb.FenceCellRequest{CellId: "cell-1", OperationId: "f1", Reason: "dead", Force: true}); err != nil {
		t.Fatal(err)
	}
	if op := p.done("f1"); op.State != core.OperationDone {
		t.Fatalf("%+v", op)
	}
	driver := handover.New(handover.Config{RetryInterval: time.Millisecond}, handover.Deps{
		Store: p.store, View: p.view, Cells: told{}, Clock: clock.System(),
		Open: func(ctx context.Context, spec core.CellSpec) (handover.Shard, error) {
			return reclaim.Files{}.Fencer(ctx, spec)
		},
	})
	move := func(dry bool) (*pb.HandOverBucketsResponse, error) {
		return sre.Routing.HandOverBuckets(ctx, &pb.HandOverBucketsRequest{OperationId: "h1", CampaignId: "c", FromCellId: "cell-1", ToCellId: "cell-2", BucketTo: 4095, Reason: "fenced", ValidateOnly: dry})
	}
	calls := map[string]func() error{
		"route show CAMPAIGN": func() error {
			_, err := sre.Routing.GetRoute(ctx, &pb.GetRouteRequest{CampaignId: "c"})
			return err
		},
		"route handover CAMPAIGN --from cell-2 --to cell-3 --buckets 0-4095 --dry-run": func() error {
			out, err := move(true)
			if err == nil && (out.GetBucketCount() != 2048 || out.GetBuyers() != 1) {
				err = fmt.Errorf("%v", out)
			}
			return err
		},
		"route handover CAMPAIGN --from cell-2 --to cell-3 --buckets 0-4095 --reason '": func() error {
			if _, err := move(false); err != nil {
				return err
			}
			op, err := p.store.Operation(ctx, "h1")
			if err == nil {
				err = driver.Step(ctx, p.leader, op)
			}
			if op, _ = p.store.Operation(ctx, "h1"); err == nil && op.State != core.OperationDone {
				err = fmt.Errorf("%s at %s: %s", op.State, op.Step, op.Detail)
			}
			return err
		},
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
	if done != len(calls) {
		t.Errorf("%d of %d commands are on the page", done, len(calls))
	}
	p.caughtUp()
	if route, _ := p.view.Snapshot().Route("c"); route.Version != 2 || route.Owns("cell-1") {
		t.Errorf("cell-1 is still a home: version %d", route.Version)
	}
	if _, err := p.as(access.CampaignManager).Routing.HandOverBuckets(ctx, &pb.HandOverBucketsRequest{}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a campaign manager hands over: %v", err)
	}
}
