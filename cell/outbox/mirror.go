package outbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/cellquota/cellquota/cell/admission"
	"github.com/cellquota/cellquota/cell/events"
	"github.com/cellquota/cellquota/cell/shard"
)

// Mirror is the mirror as the publisher needs it.
type Mirror interface {
	// ApplyEffects applies effects in order and answers in the same order.
	ApplyEffects(ctx context.Context, effects []admission.Effect) []admission.EffectResult
}

// maxBroken is how often a row may meet a broken script or key before it is taken
// for the cause and parked.
const maxBroken = 20

var errMirrorAway = errors.New("outbox: the mirror cannot take effects now")

// NewMirrorPublisher makes the loop that brings effects to the mirror.
func NewMirrorPublisher(cfg Config, store Store, mirror Mirror, deps Deps) *Publisher {
	return newPublisher(cfg, targetMirror, store, mirrorTarget{mirror}, deps)
}

type mirrorTarget struct{ mirror Mirror }

func (m mirrorTarget) deliver(ctx context.Context, writer shard.Writer, rows []shard.OutboxRow) []answer {
	answers := make([]answer, len(rows))
	effects, at := make([]admission.Effect, 0, len(rows)), make([]int, 0, len(rows))
	for i, row := range rows {
		if row.MirrorBuild.Fence < writer.FenceVersion {
			// No mirror of this fence version was raised when the row was claimed. The
			// row was committed by then, so every snapshot of a later one has it; and a
			// mirror of an older version serves nobody.
			continue
		}
		effect, err := events.DecodeEffect(row.Payload)
		if err != nil {
			answers[i] = answer{never, err}
			continue
		}
		effects = append(effects, admission.Effect{
			Scope: admission.ScopeOf(row.CampaignID, row.ScopeKey), Build: row.MirrorBuild, Effect: effect,
		})
		at = append(at, i)
	}
	for n, r := range m.mirror.ApplyEffects(ctx, effects) {
		answers[at[n]] = judge(r, rows[at[n]])
	}
	return answers
}

func judge(r admission.EffectResult, row shard.OutboxRow) answer {
	switch {
	case errors.Is(r.Err, admission.ErrInvalidAsk):
		return answer{never, r.Err}
	case errors.Is(r.Err, admission.ErrBroken) && row.Attempts >= maxBroken:
		return answer{never, r.Err}
	case errors.Is(r.Err, admission.ErrBroken):
		return answer{later, r.Err}
	case r.Err != nil:
		return answer{held, r.Err}
	case r.Change.Done():
		return answer{}
	default:
		return answer{later, fmt.Errorf("%w: %s, mirror %s, build %s", errMirrorAway, r.Change, row.ScopeKey, row.MirrorBuild)}
	}
}
