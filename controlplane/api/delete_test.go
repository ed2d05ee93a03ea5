package api_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cellquota/cellquota/controlplane/access"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/testkit"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// TestK30DeleteWithLiveReservations: a campaign with three reserved and two paid units is not deleted, and
// the refusal counts them; close works, what was reserved is paid or closed after it, the ledger stays
// readable; and once it was settled and deleted, its id is not used again.
func TestK30DeleteWithLiveReservations(t *testing.T) {
	p := newPlant(t)
	ctx, manager := testkit.Deadline(t), p.as(access.CampaignManager)
	for _, user := range []string{"a", "b", "c"} {
		p.exec("cell-1", "SELECT sale.sell(1, 's', $1)", user)
	}
	for _, user := range []string{"d", "e"} {
		p.exec("cell-2", "SELECT sale.sell(1, 's', $1)", user)
		p.exec("cell-2", "SELECT sale.pay(1, 's', $1)", user)
	}
	remove := func(op string, dry bool) (*pb.DeleteCampaignResponse, error) {
		return manager.Campaigns.DeleteCampaign(ctx, &pb.DeleteCampaignRequest{CampaignId: "c", OperationId: op, Reason: "old", ValidateOnly: dry})
	}
	alive := func(reserved, paid string) {
		t.Helper()
		for _, dry := range []bool{true, false} {
			_, err := remove("d1", dry)
			facts := rpcstatus.Metadata(err)
			if status.Code(err) != codes.FailedPrecondition || rpcstatus.Reason(err) != "CAMPAIGN_LIVES" || facts["reserved_units"] != reserved || facts["paid_units"] != paid {
				t.Fatalf("delete: %v, %v", err, facts)
			}
		}
	}
	alive("3", "2")
	closed, err := manager.Campaigns.CloseCampaign(ctx, &pb.CloseCampaignRequest{CampaignId: "c", OperationId: "close", Reason: "instead"})
	if err != nil || closed.GetCampaign().GetState() != pb.CampaignState_CAMPAIGN_STATE_CLOSED {
		t.Fatalf("close: %v, %v", closed, err)
	}
	p.exec("cell-1", "SELECT sale.pay(1, 's', 'a')")
	p.exec("cell-1", "SELECT sale.close(1, 's', 'b')")
	alive("1", "3")
	var ledger int
	if err := p.conns["cell-1"].QueryRow(ctx, "SELECT count(*) FROM cellquota.v_ledger WHERE campaign_id = 'c'").Scan(&ledger); err != nil || ledger != 6 {
		t.Errorf("the ledger has %d entries, %v", ledger, err) // a grant, three reservations, a payment, a release
	}

	settle := func(archive ...core.ArchiveObject) {
		p.write(func(tx *store.Tx) error {
			c, _, err := tx.Campaign("c")
			if err != nil {
				return err
			}
			c.State, c.Archive = core.CampaignSettled, archive
			return tx.PutCampaign(c)
		})
	}
	settle()
	if _, err := remove("d2", false); rpcstatus.Reason(err) != "CAMPAIGN_LIVES" || !strings.Contains(err.Error(), "archive") {
		t.Errorf("settled without its archive: %v", err)
	}
	settle(core.ArchiveObject{Name: "c/journal", SHA256: "ab", Size: 1})
	if dry, err := remove("d3", true); err != nil || dry.GetOperation() != nil {
		t.Errorf("validate only: %v, %v", dry, err)
	}
	got, err := remove("d3", false)
	if err != nil || got.GetOperation().GetKind() != core.OperationDelete {
		t.Fatalf("settled: %v, %v", got, err)
	}
	if again, err := remove("d3", false); err != nil || again.GetOperation().GetOperationId() != "d3" {
		t.Errorf("the same call again: %v, %v", again, err)
	}
	p.caughtUp()
	if _, err := manager.Campaigns.GetCampaign(ctx, &pb.GetCampaignRequest{CampaignId: "c"}); status.Code(err) != codes.NotFound {
		t.Errorf("get: %v", err)
	}
	_, err = manager.Campaigns.CreateCampaign(ctx, &pb.CreateCampaignRequest{Yaml: campaignYAML("c", 2), OperationId: "again"})
	if status.Code(err) != codes.AlreadyExists || rpcstatus.Reason(err) != "CAMPAIGN_DELETED" {
		t.Errorf("the id again: %v", err)
	}
	if left, found := p.view.Snapshot().Tombstone("c"); !found || left.OperationID != "d3" || len(left.Archive) != 1 {
		t.Errorf("tombstone %+v, %v", left, found)
	}
}

// TestDeleteADraft: nothing is left of a draft, and its id may be used again.
func TestDeleteADraft(t *testing.T) {
	r := newRig(t)
	r.provision(2)
	ctx, manager := testkit.Deadline(t), r.as(access.CampaignManager)
	create := func(op string) error {
		_, err := manager.Campaigns.CreateCampaign(ctx, &pb.CreateCampaignRequest{Yaml: campaignYAML("c", 2), OperationId: op})
		return err
	}
	if err := create("c1"); err != nil {
		t.Fatal(err)
	}
	in := &pb.DeleteCampaignRequest{CampaignId: "c", OperationId: "d", Reason: "never used", ExpectedVersion: 1}
	for range 2 { // and a repeat
		got, err := manager.Campaigns.DeleteCampaign(ctx, in)
		if err != nil || got.GetOperation().GetState() != pb.OperationState_OPERATION_STATE_DONE {
			t.Fatalf("%v, %v", got, err)
		}
	}
	if err := create("c2"); err != nil {
		t.Errorf("the id again: %v", err)
	}
	if _, err := manager.Campaigns.DeleteCampaign(ctx, &pb.DeleteCampaignRequest{CampaignId: "c", OperationId: "create", Reason: "x", ExpectedVersion: 9}); rpcstatus.Reason(err) != "VERSION_CONFLICT" {
		t.Errorf("an old version: %v", err)
	}
}

// TestARefusalWithoutAShard: the refusal stands, and names the shard that did not answer.
func TestARefusalWithoutAShard(t *testing.T) {
	p := newPlant(t)
	p.exec("cell-2", "SELECT sale.sell(1, 's', 'd')")
	p.unreachable("cell-1")
	_, err := p.as(access.CampaignManager).Campaigns.DeleteCampaign(testkit.Deadline(t), &pb.DeleteCampaignRequest{CampaignId: "c", OperationId: "d", Reason: "old"})
	if facts := rpcstatus.Metadata(err); facts["unread"] != "cell-1" || facts["reserved_units"] != "1" || !strings.Contains(err.Error(), "cell-1 did not answer") {
		t.Errorf("%v, %v", err, facts)
	}
}
