package ctl

import (
	"context"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/cellquota/cellquota/internal/clock"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

var eleventh = time.Date(2026, 11, 11, 0, 0, 0, 0, time.UTC)

// TestScripts plays testdata/script: what people and scripts type, what they get, and the exit code.
//
//	rc N cellctl ARGS…   runs a command line, which must end with N
//	verdict WORD         what Verify answers from now on: ok, broken, unchecked
//	refuse N             the next N calls are refused as unavailable
//	token ROLE           the last call came with that role's token
//	order REQUEST STATE  the shards have an order of that request
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			f := &fake{verdict: verdictOf("ok"), resolved: map[string][]*pb.ResolvedRow{}}
			file := filepath.Join(env.WorkDir, "endpoints.json")
			serve(scriptTB{t, env}, f, file)
			env.Values["fake"] = f
			env.Setenv("CELLQUOTA_ENDPOINTS", file)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"rc":      rc,
			"verdict": func(ts *testscript.TestScript, _ bool, args []string) { of(ts).verdict = verdictOf(args[0]) },
			"order": func(ts *testscript.TestScript, _ bool, args []string) {
				f := of(ts)
				f.mu.Lock()
				defer f.mu.Unlock()
				f.resolved[args[0]] = []*pb.ResolvedRow{{CellId: "cell-1", Outcome: "ORDERED", OrderId: "o-" + args[0], OrderState: pb.OrderState(pb.OrderState_value["ORDER_STATE_"+args[1]]), Quantity: 1}}
			},
			"refuse": func(ts *testscript.TestScript, _ bool, args []string) {
				n, err := strconv.Atoi(args[0])
				ts.Check(err)
				f := of(ts)
				f.mu.Lock()
				defer f.mu.Unlock()
				f.refusals = n
			},
			"token": func(ts *testscript.TestScript, _ bool, args []string) {
				f := of(ts)
				f.mu.Lock()
				defer f.mu.Unlock()
				if last := f.tokens[len(f.tokens)-1]; last != "token-"+args[0] {
					ts.Fatalf("the last call came with %q, want that of %s", last, args[0])
				}
			},
		},
	})
}

func of(ts *testscript.TestScript) *fake { return ts.Value("fake").(*fake) }

// scriptTB ends the server with its script.
type scriptTB struct {
	testing.TB
	env *testscript.Env
}

func (s scriptTB) Cleanup(f func()) { s.env.Defer(f) }

func rc(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	line := args[2:]
	for i, a := range line { // files lie in the script's folder
		if strings.HasSuffix(a, ".yaml") || strings.HasSuffix(a, ".jsonl") {
			line[i] = ts.MkAbs(a)
		}
	}
	got := Run(context.Background(), line, Program{
		In: strings.NewReader(""), Out: ts.Stdout(), Err: ts.Stderr(), Clock: clock.System(), Env: ts.Getenv, ConfigFile: ts.MkAbs("config.yaml"),
	})
	if got != want {
		ts.Fatalf("cellctl %s: exit code %d, want %d", strings.Join(line, " "), got, want)
	}
}

func verdictOf(word string) *pb.VerifyResponse {
	v := &pb.VerifyResponse{Ok: true, Revision: 77, Checks: []*pb.Check{
		{Invariant: "I1", Verdict: pb.Verdict_VERDICT_OK, Detail: "1 books"},
		{Invariant: "I4", Verdict: pb.Verdict_VERDICT_OK},
		{Invariant: "I6", Verdict: pb.Verdict_VERDICT_SKIPPED, Detail: "needs a history"},
		{Invariant: "I7", Verdict: pb.Verdict_VERDICT_OK},
	}}
	switch word {
	case "broken":
		v.Ok, v.Checks[0].Verdict = false, pb.Verdict_VERDICT_BROKEN
		v.Breaches = []*pb.Breach{{Invariant: "I1", CampaignId: "demo", SkuId: "phone-x", Detail: "reserve 1 + allocations 2 is not 4"}}
		v.Unchecked = []*pb.Unchecked{{Invariant: "I2", What: "cell cell-2", Why: "connection refused"}} // broken beats unchecked
	case "unchecked":
		v.Checks[0].Verdict = pb.Verdict_VERDICT_UNCHECKED
		v.Unchecked = []*pb.Unchecked{{Invariant: "I1", What: "cell cell-2", Why: "connection refused"}}
	}
	return v
}
