package intent

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
)

// Living is what a campaign's shards still hold: units that a customer may pay
// for, and units that were paid.
type Living struct {
	Reserved, Paid int64
	Unread         []string // cells whose shard did not answer
}

// Sales reads the shards for a refusal's figures.
type Sales interface {
	// Living adds up what a campaign's cells hold. A shard that does not answer
	// is named; it never fails.
	Living(ctx context.Context, campaign ids.CampaignID, cells []core.Cell) Living
}

// DeleteCampaign removes a draft, or a settled campaign whose archive stands; of
// the latter a tombstone stays, and the planner removes books, records and route in
// bounded steps. Anything else is core.ErrLives, with what lives. A repeat finds
// its operation.
func (s *Service) DeleteCampaign(ctx context.Context, who Caller, c Change) (core.Operation, error) {
	c = c.of("delete", "")
	var out core.Operation
	var campaign core.Campaign
	revision, err := s.Store.Update(ctx, "delete "+string(c.Campaign), func(tx *store.Tx) (err error) {
		out, campaign, err = s.bury(tx, who, c)
		return err
	})
	if errors.Is(err, core.ErrLives) {
		return core.Operation{}, s.lives(ctx, campaign, err)
	}
	if err == nil {
		s.visible(ctx, revision)
	}
	return out, err
}

func (s *Service) bury(tx *store.Tx, who Caller, c Change) (core.Operation, core.Campaign, error) {
	parameters := core.Digest(c.verb, string(c.Campaign))
	op, begun, err := tx.Operation(c.OperationID)
	if err != nil {
		return core.Operation{}, core.Campaign{}, err
	}
	if begun {
		return op, core.Campaign{}, op.SameParameters(parameters)
	}
	campaign, err := need(tx, c.Campaign)
	if err != nil {
		return core.Operation{}, campaign, err
	}
	if c.ExpectedVersion != 0 && c.ExpectedVersion != campaign.Version {
		return core.Operation{}, campaign, core.VersionConflict(c.ExpectedVersion, campaign.Version)
	}
	if err := campaign.Deletable(); err != nil || c.ValidateOnly {
		return core.Operation{}, campaign, err
	}
	op = core.Operation{
		ID: c.OperationID, Kind: core.OperationDelete, Subject: string(c.Campaign), State: core.OperationPending, Step: core.StepDropRecords,
		Actor: who.Name, Reason: c.Reason, StartedAt: tx.Now(), Parameters: parameters,
	}
	tombstone, leaves := campaign.Tombstone(c.OperationID, tx.Now())
	if leaves {
		_, _, err := tx.Tombstone(c.Campaign)
		if err := errors.Join(err, tx.PutTombstone(tombstone)); err != nil {
			return core.Operation{}, campaign, err
		}
	} else { // nothing but the record exists of a draft
		op = op.End(core.OperationDone, "a draft", tx.Now())
	}
	return op, campaign, errors.Join(tx.DropCampaign(c.Campaign), tx.PutOperation(op),
		tx.Audit(who.audit(c.OperationID, "campaign "+string(c.Campaign), c.because())))
}

// lives adds to a refusal what the shards hold.
func (s *Service) lives(ctx context.Context, campaign core.Campaign, refusal error) error {
	if s.Sales == nil || !campaign.State.HasBooks() {
		return refusal
	}
	var cells []core.Cell
	snapshot := s.View.Snapshot()
	for _, id := range campaign.Spec.Cells {
		if c, known := snapshot.Cell(id); known {
			cells = append(cells, c)
		}
	}
	got := s.Sales.Living(ctx, campaign.Spec.ID, cells)
	facts := map[string]string{"reserved_units": strconv.FormatInt(got.Reserved, 10), "paid_units": strconv.FormatInt(got.Paid, 10)}
	text := fmt.Errorf("%w; its shards hold %d reserved and %d paid units", refusal, got.Reserved, got.Paid)
	if len(got.Unread) > 0 {
		facts["unread"] = strings.Join(got.Unread, " ")
		text = fmt.Errorf("%w, and %s did not answer", text, strings.Join(got.Unread, ", "))
	}
	return rpcstatus.With(text, facts, nil, 0)
}
