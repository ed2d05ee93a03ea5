package api

import (
	"errors"
	"testing"

	"github.com/cellquota/cellquota/cell/admission"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// What stands against a first attempt is told only where the mirror knows that there was none before: who
// holds an order must not hear of an end that is none. A settled campaign has no mirror to wait for.
func TestNobodyKnowsIsNotTheEnd(t *testing.T) {
	const ended, ready = pb.AdmitOutcome_ADMIT_OUTCOME_ENDED, pb.AdmitOutcome_ADMIT_OUTCOME_NOT_READY
	closed, settled := pb.CampaignState_CAMPAIGN_STATE_CLOSED, pb.CampaignState_CAMPAIGN_STATE_SETTLED
	away := errors.New("redis is away")
	for _, row := range []struct {
		result admission.Result
		state  pb.CampaignState
		want   pb.AdmitOutcome
	}{
		{admission.Result{Outcome: admission.Clear}, closed, ended},
		{admission.Result{Outcome: admission.NotReady}, closed, ready},
		{admission.Result{Outcome: admission.Paused, Err: away}, closed, pb.AdmitOutcome_ADMIT_OUTCOME_PAUSED},
		{admission.Result{Outcome: admission.Fenced}, closed, pb.AdmitOutcome_ADMIT_OUTCOME_FENCED},
		{admission.Result{Err: away}, closed, ready},
		{admission.Result{Outcome: admission.NotReady}, settled, ended},
	} {
		b, _ := newBatch()
		repeat := asked()
		repeat.campaign.State = row.state
		got := b.repeated(repeat, ended, row.result)
		if got.GetOutcome() != row.want || got.GetCorrelationId() != 7 {
			t.Errorf("%s of a %s campaign: answered %v, want %s", row.result.Outcome, row.state, got, row.want)
		}
	}
}
