package intent

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/ids"
)

// HandOver asks for buckets of a campaign to go to another cell.
type HandOver struct {
	OperationID string
	Campaign    ids.CampaignID
	core.Handover
	Reason string
	// May refuses the caller a cell as it stands now, in the transaction; nil: everybody
	// may.
	May func(core.Cell) error
}

// Parameters is the digest that a repeat must match.
func (h HandOver) Parameters() string {
	return core.Digest("handover", string(h.Campaign), h.Domain, string(h.From), string(h.To), strconv.Itoa(int(h.First)), strconv.Itoa(int(h.Last)))
}

// HandedOver is what a request came to: the operation, zero where it was only
// validated, and what of the range the giver owns now.
type HandedOver struct {
	Operation core.Operation
	Giver     core.Cell
	Ranges    []allocator.Range
	Version   int64 // of the route
}

// HandOver stores the operation, which the leader's driver carries out. Nothing has
// happened before that finds both shards; what is refused now would be refused then:
// ErrNothingToMove, ErrMoving, ErrCellState, ErrNotTakingPart, ErrCampaignState,
// ErrVersion (of the route). The same id answers the same operation.
func (s *Service) HandOver(ctx context.Context, who Caller, in HandOver, validateOnly bool) (HandedOver, error) {
	var out HandedOver
	revision, err := s.Store.Update(ctx, "hand over "+in.OperationID, func(tx *store.Tx) error {
		stands, taken, err := tx.Operation(in.OperationID)
		if err != nil {
			return err
		}
		if taken {
			if err := stands.SameParameters(in.Parameters()); err != nil {
				return err
			}
			out = HandedOver{Operation: stands}
			return s.standing(tx, in, &out)
		}
		if out, err = s.mayHandOver(tx, in); err != nil || validateOnly {
			return err
		}
		out.Operation = core.Operation{
			ID: in.OperationID, Kind: core.OperationHandOver, Subject: string(in.Campaign), State: core.OperationPending, Step: core.StepOrder,
			Actor: who.Name, Reason: in.Reason, StartedAt: tx.Now(), Handover: in.Handover, Parameters: in.Parameters(),
		}
		return errors.Join(tx.PutOperation(out.Operation), tx.Audit(who.audit(in.OperationID, "campaign "+string(in.Campaign), in.Reason)))
	})
	if err == nil {
		s.visible(ctx, revision)
	}
	return out, err
}

// standing tells a repeat what the route looks like now.
func (s *Service) standing(tx *store.Tx, in HandOver, out *HandedOver) error {
	route, _, err := tx.Route(in.Campaign)
	out.Version = route.Version
	if _, m, found := route.Move(out.Operation.Handover.RouteVersion); found {
		out.Ranges = m.Ranges
	}
	return err
}

func (s *Service) mayHandOver(tx *store.Tx, in HandOver) (HandedOver, error) {
	campaign, err := need(tx, in.Campaign)
	if err == nil {
		err = campaign.MayHandOver()
	}
	if err != nil {
		return HandedOver{}, err
	}
	giver, err := s.handsOver(tx, in, in.From)
	if err == nil {
		err = giver.MayGive()
	}
	if err != nil {
		return HandedOver{}, err
	}
	taker, err := s.handsOver(tx, in, in.To)
	if err != nil {
		return HandedOver{}, err
	}
	read := taker.State
	if read == core.CellActive {
		read = s.View.Snapshot().CellState(taker) // by the view, which may be late; the driver looks again
	}
	if err := errors.Join(taker.MayTakeBuckets(read), campaign.TakesPart(in.To)); err != nil {
		return HandedOver{}, err
	}
	route, known, err := tx.Route(in.Campaign)
	switch {
	case err != nil:
		return HandedOver{}, err
	case !known:
		return HandedOver{}, fmt.Errorf("%w: %s has no route", core.ErrUnknownCampaign, in.Campaign)
	case in.ExpectedVersion != 0 && in.ExpectedVersion != route.Version:
		return HandedOver{}, core.VersionConflict(in.ExpectedVersion, route.Version)
	}
	_, move, err := route.Order(in.Domain, in.From, in.To, in.First, in.Last, tx.Now())
	return HandedOver{Giver: giver, Ranges: move.Ranges, Version: route.Version}, err
}

// handsOver reads one of the two cells.
func (s *Service) handsOver(tx *store.Tx, in HandOver, id ids.CellID) (core.Cell, error) {
	cell, known, err := tx.Cell(id)
	if err == nil && !known {
		err = unknownCell(id)
	}
	if err == nil && in.May != nil {
		err = in.May(cell)
	}
	return cell, err
}
