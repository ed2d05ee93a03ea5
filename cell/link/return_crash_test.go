package link

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/cellquota/cellquota/cell/admission"
	"github.com/cellquota/cellquota/cell/events"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// A return has four steps: the mirror is debited, the shard decides, the mirror is credited where it
// refused, the shard's effect reaches the mirror. The process dies after any of them, the leader sends the
// return again to another one, and the mirror is rebuilt from the shard's facts at any moment between.
// Whatever the order, afterwards mirror and shard have the same units, and no step was refused for good.
func TestReturnSurvivesCrashesAndRebuilds(t *testing.T) {
	p, _, _ := selling(t)
	p.eventually(func() error {
		if _, ok := p.rules.Current().Campaign(campaign); !ok {
			return fmt.Errorf("the rules are not read yet")
		}
		return nil
	})
	p.stop()
	s := &session{Link: &Link{Deps: Deps{Shard: p.shard, Mirror: p.mirror, Rules: p.rules, Clock: clock.System(), Logger: slog.New(slog.DiscardHandler)}}}
	r := returning{process: p, session: s, number: 1}
	r.apply(shard.Grant, 500)
	p.must(p.mirror.Check(p.ctx))
	r.rebuild()
	const steps = 4
	for _, fits := range []bool{true, false} {
		for crash := range steps + 1 { // after so many steps of the first try
			for rebuilt := -1; rebuilt < crash+steps; rebuilt++ { // before that step; -1: not at all
				r.play(t, fits, crash, rebuilt)
			}
		}
	}
}

// returning plays returns of one shard and one mirror, the newest build of several.
type returning struct {
	*process
	session *session
	number  int64
}

func (r *returning) next(kind shard.AdjustmentKind, units int32) shard.Adjustment {
	r.number++
	return shard.Adjustment{
		ID: fmt.Sprint("n", r.number), Campaign: campaign, SKU: phone, FenceVersion: 1, Number: r.number, Kind: kind, Units: units,
		TermCount: 1, TermID: "term-1", BookRecordID: fmt.Sprint("rec-n", r.number),
	}
}

func (r *returning) apply(kind shard.AdjustmentKind, units int32) {
	r.t.Helper()
	_, err := r.shard.ApplyAdjustment(r.ctx, r.next(kind, units))
	r.must(err)
}

func (r *returning) available() (n int64) {
	r.scan("SELECT available FROM cellquota.stock", &n)
	return n
}

// play is one return: a first try that dies, then a whole one.
func (r *returning) play(t *testing.T, fits bool, crash, rebuilt int) {
	t.Helper()
	before := r.available()
	a := r.next(shard.Return, 1)
	want, wanted := shard.Applied, before-1
	if !fits {
		a.Units, want, wanted = int32(before)+1, shard.Refused, before
	}
	steps := []func(){
		func() { r.session.debit(r.ctx, a) },
		func() {
			out, err := r.shard.ApplyAdjustment(r.ctx, a)
			r.must(err)
			if out.Outcome != want {
				t.Fatalf("decided %s, want %s", out.Outcome, want)
			}
		},
		func() {
			if !fits {
				r.session.credit(r.ctx, a)
			}
		},
		r.effects,
	}
	for i, step := range append(steps[:crash:crash], steps...) {
		if i == rebuilt {
			r.rebuild()
		}
		step()
	}
	if got := r.available(); got != wanted {
		t.Fatalf("fits %t, crash after %d, rebuilt before %d: the shard has %d, want %d", fits, crash, rebuilt, got, wanted)
	}
	if got := r.mirrorStock(); got != wanted {
		t.Errorf("fits %t, crash after %d, rebuilt before %d: the mirror has %d, the shard %d", fits, crash, rebuilt, got, wanted)
		r.rebuild() // the next one starts clean
	}
}

// effects brings what the shard left to the mirror, every row twice, as a publisher does whose answer was lost.
func (r *returning) effects() {
	r.t.Helper()
	rows, err := r.shard.ClaimOutbox(r.ctx, "MIRROR", 100, "me", time.Minute)
	r.must(err)
	var done []int64
	for _, row := range rows {
		effect, err := events.DecodeEffect(row.Payload)
		r.must(err)
		e := admission.Effect{Scope: admission.ScopeOf(row.CampaignID, row.ScopeKey), Build: row.MirrorBuild, Effect: effect}
		for _, result := range r.mirror.ApplyEffects(r.ctx, []admission.Effect{e, e}) {
			r.must(result.Err)
			if !result.Change.Done() {
				r.t.Fatalf("effect %s: %s", effect.GetEffectId(), result.Change)
			}
		}
		done = append(done, row.ID)
	}
	r.must(r.shard.MarkPublished(r.ctx, "me", done))
}

// rebuild makes a new mirror from the shard's facts, as cell/rebuild does; the barrier counts as consumed.
func (r *returning) rebuild() {
	r.t.Helper()
	mint, err := r.shard.MintBuild(r.ctx, campaign, string(phone), "me", time.Minute)
	r.must(err)
	r.exec("UPDATE cellquota.mirrors SET raised_fence = minted_fence, raised_count = minted_count")
	snap, err := r.shard.MirrorSnapshot(r.ctx, campaign, string(phone))
	r.must(err)
	defer snap.Close(r.ctx)
	r.must(r.mirror.Check(r.ctx))
	server, err := r.mirror.Acknowledge(r.ctx)
	r.must(err)
	identity, err := r.shard.Identity(r.ctx)
	r.must(err)
	var all admission.BucketSet
	all.Add(0, ids.Buckets-1)
	stock := snap.Stocks[0]
	r.must(r.mirror.Install(r.ctx, admission.Image{
		Scope: admission.Scope{Campaign: campaign, SKU: phone}, Build: mint.Build, Server: server, Shard: identity,
		Window: admission.Window{OpenAtMS: 1, CloseAtMS: 1 << 42, KeepUntilMS: 1 << 42}, StreamMax: 100,
		Stocks: []admission.StockBase{{
			SKU: phone, Available: int64(stock.Available), Version: stock.Version, LastNumber: stock.LastNumber,
			Gate: admission.Gate{SKU: phone, State: pb.GateState_GATE_STATE_OPEN, Bound: 100},
		}},
		Buckets: []admission.DomainBuckets{{Set: all}},
	}))
}
