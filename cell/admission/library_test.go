package admission

import (
	"errors"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/cellquota/cellquota/internal/testkit"
	eventsv1 "github.com/cellquota/cellquota/proto/cellquota/events/v1"
	cellquotav1 "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// luaList reads one "local NAME = { A = 1, … }" of the library.
func luaList(t *testing.T, name string) map[string]int {
	t.Helper()
	body := regexp.MustCompile(`(?s)local ` + name + ` = \{(.*?)\}`).FindStringSubmatch(libraryText)
	if body == nil {
		t.Fatalf("the library has no list %s", name)
	}
	out := map[string]int{}
	for _, m := range regexp.MustCompile(`(\w+) = (\d+),`).FindAllStringSubmatch(body[1], -1) {
		n, err := strconv.Atoi(m[2])
		if err != nil {
			t.Fatal(err)
		}
		out[m[1]] = n
	}
	if len(out) == 0 {
		t.Fatalf("the list %s is empty", name)
	}
	return out
}

func TestListsOfScriptAndGoAreOne(t *testing.T) {
	outcomes, changes := luaList(t, "OUTCOME"), luaList(t, "CHANGE")
	if len(outcomes) != len(outcomeNames)-1 || len(changes) != len(changeNames)-1 {
		t.Fatalf("%d outcomes and %d changes in the script", len(outcomes), len(changes))
	}
	for i, name := range outcomeNames[1:] {
		if outcomes[name] != i+1 {
			t.Errorf("outcome %s is %d in the script, %d here", name, outcomes[name], i+1)
		}
	}
	for i, name := range changeNames[1:] {
		if changes[name] != i+1 {
			t.Errorf("change %s is %d in the script, %d here", name, changes[name], i+1)
		}
	}
}

// The script knows some numbers of the protos; they are fixed there.
func TestNumbersOfTheProtos(t *testing.T) {
	check := func(list, prefix string, numbers map[string]int32) {
		t.Helper()
		for name, n := range luaList(t, list) {
			if got, ok := numbers[prefix+name]; !ok || int(got) != n {
				t.Errorf("%s.%s is %d in the script, %d in the proto (%t)", list, name, n, got, ok)
			}
		}
	}
	check("GATE", "GATE_STATE_", cellquotav1.GateState_value)
	check("STATE", "REQUEST_STATE_", cellquotav1.RequestState_value)
	check("REASON", "REASON_", cellquotav1.Reason_value)
	check("MARK", "MARK_ACTION_", eventsv1.MarkAction_value)
}

// The rules of the contract block that can be seen in the text.
func TestLibraryKeepsItsContract(t *testing.T) {
	code := regexp.MustCompile(`(?m)--.*$`).ReplaceAllString(libraryText, "")
	for what, pattern := range map[string]string{
		"text made of a number by tostring": `tostring\(`,
		"a key built in the script":         `'cq:`,
		"a wall clock other than TIME":      `os\.(time|clock)`,
		"an unbounded read":                 `'(KEYS|SCAN|HGETALL|SMEMBERS|XRANGE|ZRANGEBYSCORE)'`,
		"trimming of the stream":            `'(MAXLEN|MINID|XTRIM)'`,
	} {
		if found := regexp.MustCompile(pattern).FindString(code); found != "" {
			t.Errorf("%s: %s", what, found)
		}
	}
	for _, name := range regexp.MustCompile(`(?m)^redis\.register_function.*?'(cq\w+)'`).FindAllStringSubmatch(libraryText, -1) {
		if !strings.Contains(libraryText, "-- "+name[1]+":") {
			t.Errorf("%s has no contract comment", name[1])
		}
	}
}

func TestLibraryIsLoadedOnceAndCompared(t *testing.T) {
	s := testkit.Redis(t)
	ctx := testkit.Deadline(t)
	c, _ := openClient(t, s.Addr(), Standalone)
	for range 2 {
		if err := c.Check(ctx); err != nil {
			t.Fatal(err)
		}
	}
	have, err := s.Client(t).FunctionList(ctx, redis.FunctionListQuery{WithCode: true}).Result()
	if err != nil || len(have) != 1 || have[0].Name != libraryName || have[0].Code != libraryText {
		t.Fatalf("%d libraries, %v", len(have), err)
	}
}

// A program of the same version with another library is stopped, not overwritten.
func TestAnotherLibraryIsRefused(t *testing.T) {
	s := testkit.Redis(t)
	ctx := testkit.Deadline(t)
	raw := s.Client(t)
	if err := raw.FunctionLoad(ctx, strings.Replace(libraryText, "NONCE_MARGIN_MS = 60000", "NONCE_MARGIN_MS = 1", 1)).Err(); err != nil {
		t.Fatal(err)
	}
	c, _ := openClient(t, s.Addr(), Standalone)
	if err := c.Check(ctx); !errors.Is(err, ErrLibrary) {
		t.Fatalf("got %v, want ErrLibrary", err)
	}
}

// K48: the server is asked before anything is trusted to it.
func TestUnfitServersAreRefused(t *testing.T) {
	ctx := testkit.Deadline(t)
	evicting := testkit.Redis(t, "--maxmemory-policy", "allkeys-lru")
	c, _ := openClient(t, evicting.Addr(), Standalone)
	if err := c.Check(ctx); !errors.Is(err, ErrUnfit) || !strings.Contains(err.Error(), "noeviction") {
		t.Fatalf("an evicting server: %v", err)
	}
	if _, err := c.Acknowledge(ctx); !errors.Is(err, ErrUnfit) {
		t.Fatalf("an evicting server was acknowledged: %v", err)
	}
	for _, s := range []server{{role: "master", major: 6, evict: fitPolicy}, {role: "slave", major: 7, evict: fitPolicy}} {
		if s.fit() == nil {
			t.Errorf("%+v is fit", s)
		}
	}
}

// K50: a primary that was demoted behind our back stops at once.
func TestReplicaAdmitsNothing(t *testing.T) {
	m := newMirror(t, image(skuScope, build1))
	ctx := testkit.Deadline(t)
	want(t, m.one(ctx, ask("ann", "r1")), Accepted)
	primary := testkit.Redis(t)
	if err := m.raw.Do(ctx, "REPLICAOF", "127.0.0.1", strings.Split(primary.Addr(), ":")[1]).Err(); err != nil {
		t.Fatal(err)
	}
	if r := m.one(ctx, ask("bob", "r1")); r.Outcome == Accepted || r.Err == nil {
		t.Fatalf("%s %v", r.Outcome, r.Err)
	}
	if _, err := m.Acknowledge(ctx); !errors.Is(err, ErrNotMaster) {
		t.Fatalf("a replica was acknowledged: %v", err)
	}
}
