package link

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/telemetry"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

const (
	applyTries   = 3
	applyPause   = 100 * time.Millisecond
	applyTimeout = 15 * time.Second // of one directive; its repeat tells what became of it
)

// errOutdated ends a stream that stands under another fence version or term than the shard: the next
// registration learns which is right.
var errOutdated = errors.New("this stream is outdated")

// apply carries out what the leader says, one thing after the other.
func (s *session) apply(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case in := <-s.work:
			var err error
			if raise := in.GetRaiseTerm(); raise != nil {
				err = s.raiseTerm(ctx, raise.GetTerm())
			} else {
				err = s.directive(ctx, in.GetDirective())
			}
			if err != nil {
				return err
			}
		}
	}
}

// raiseTerm raises the term row and commits, and only then reads the facts: what an older leader can
// still have applied is in them.
func (s *session) raiseTerm(ctx context.Context, term *pb.Term) error {
	within, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	if err := s.Shard.RaiseTerm(within, term.GetCount(), term.GetId()); err != nil {
		return fmt.Errorf("raise the term row to %d: %w", term.GetCount(), err)
	}
	fence, stocks, err := s.facts(within)
	if err != nil {
		return fmt.Errorf("read the facts under term %d: %w", term.GetCount(), err)
	}
	out := &pb.TermRaised{Term: term, FenceVersion: fence.Version, FenceState: fenceState(fence.State)}
	for _, f := range stocks {
		out.Stocks = append(out.Stocks, protoStock(f))
	}
	select {
	case s.send <- &pb.LinkRequest{Kind: &pb.LinkRequest_TermRaised{TermRaised: out}}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// directive carries out one directive and queues its result. An error ends the stream.
func (s *session) directive(ctx context.Context, d *pb.Directive) error {
	writer, ok := s.Shard.Writer()
	switch {
	case !ok || d.GetFenceVersion() > writer.FenceVersion:
		return fmt.Errorf("%w: directive %s is of fence version %d", errOutdated, d.GetDirectiveId(), d.GetFenceVersion())
	case d.GetFenceVersion() < writer.FenceVersion && d.GetAdjustment() == nil: // an adjustment may have been applied under its version
		s.unsent.put(refusal(d, fmt.Sprintf("written for fence version %d; the shard is at %d", d.GetFenceVersion(), writer.FenceVersion)))
		return nil
	}
	result, err := s.tries(ctx, d)
	switch {
	case err == nil && result == nil: // under way: the leader asks again
		return nil
	case err == nil:
		s.unsent.put(result)
		return nil
	case errors.Is(err, shard.ErrFenced), errors.Is(err, shard.ErrNoWriter), errors.Is(err, shard.ErrTermLower), ctx.Err() != nil:
		return fmt.Errorf("%w: directive %s: %w", errOutdated, d.GetDirectiveId(), err)
	case permanent(err) && !faultOfOurs(d, err):
		s.unsent.put(refusal(d, err.Error()))
	}
	s.Logger.WarnContext(ctx, "directive not carried out", telemetry.Event, "link_directive_failed", telemetry.AdjustmentID, d.GetDirectiveId(),
		telemetry.Error, err.Error(), telemetry.Retryable, !permanent(err) || faultOfOurs(d, err))
	return nil
}

// faultOfOurs: what an adjustment writes is the shard's own arithmetic; a row that the database refuses
// there is a fault of the shard or its schema, and once that is mended the same adjustment does. Its units
// stay booked as on their way until then.
func faultOfOurs(d *pb.Directive, err error) bool {
	return d.GetAdjustment() != nil && errors.Is(err, shard.ErrBadData)
}

// permanent errors are of the directive itself: the same words will never do.
func permanent(err error) bool {
	return errors.Is(err, shard.ErrConflict) || errors.Is(err, shard.ErrInvalid) || errors.Is(err, shard.ErrUnsupported) ||
		errors.Is(err, shard.ErrBadData) || errors.Is(err, ids.ErrInvalid)
}

func refusal(d *pb.Directive, why string) *pb.DirectiveResult {
	return &pb.DirectiveResult{DirectiveId: d.GetDirectiveId(), Done: true, Detail: why}
}

// tries repeats what failed for now, a few times; then the leader does.
func (s *session) tries(ctx context.Context, d *pb.Directive) (*pb.DirectiveResult, error) {
	within, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	for try := 1; ; try++ {
		result, err := s.carryOut(within, d)
		if err == nil || try == applyTries || (!shard.SafeToRetry(err) && !errors.Is(err, shard.ErrUnknownCommit)) {
			return result, err
		}
		if s.Clock.Sleep(within, time.Duration(try)*applyPause) != nil {
			return nil, err
		}
	}
}

func (s *session) carryOut(ctx context.Context, d *pb.Directive) (*pb.DirectiveResult, error) {
	done := &pb.DirectiveResult{DirectiveId: d.GetDirectiveId(), Done: true}
	term := d.GetTerm()
	switch k := d.GetKind().(type) {
	case *pb.Directive_Rules:
		outcome, err := s.Shard.InstallRules(ctx, term.GetCount(), term.GetId(), k.Rules)
		if err == nil && outcome == shard.RulesInstalled {
			s.Rules.Nudge()
		}
		return done, err
	case *pb.Directive_Adjustment:
		return s.adjust(ctx, d, k.Adjustment)
	case *pb.Directive_CellSwitch:
		err := s.Shard.SetSwitch(ctx, term.GetCount(), term.GetId(), k.CellSwitch)
		if err == nil {
			s.Rules.Nudge()
		}
		return done, err
	case *pb.Directive_BookNotice:
		campaign, sku, err := parseStock(k.BookNotice.GetCampaignId(), k.BookNotice.GetSkuId())
		if err != nil {
			return nil, err
		}
		return done, s.Shard.RecordBookChange(ctx, term.GetCount(), term.GetId(), campaign, sku, k.BookNotice.GetBookRecordId())
	case *pb.Directive_MirrorRebuild:
		return s.rebuild(ctx, done, k.MirrorRebuild)
	default:
		return nil, fmt.Errorf("%w: directive of kind %T", shard.ErrUnsupported, k)
	}
}

// rebuild asks for mirrors; no result while they are being made.
func (s *session) rebuild(ctx context.Context, done *pb.DirectiveResult, in *pb.MirrorRebuild) (*pb.DirectiveResult, error) {
	campaign, err := ids.ParseCampaignID(in.GetCampaignId())
	if err != nil {
		return nil, err
	}
	var sku ids.SKUID
	if in.GetSkuId() != "" {
		if sku, err = ids.ParseSKUID(in.GetSkuId()); err != nil {
			return nil, err
		}
	}
	if s.Rebuild == nil {
		return nil, fmt.Errorf("%w: this process rebuilds no mirror", shard.ErrUnsupported)
	}
	if made, err := s.Rebuild(ctx, done.GetDirectiveId(), campaign, sku); err != nil || !made {
		return nil, err
	}
	return done, nil
}

func parseStock(campaign, sku string) (ids.CampaignID, ids.SKUID, error) {
	c, err := ids.ParseCampaignID(campaign)
	s, errSKU := ids.ParseSKUID(sku)
	return c, s, errors.Join(err, errSKU)
}
