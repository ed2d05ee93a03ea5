//go:build system

package system

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cellquota/cellquota/internal/testkit"
)

// steps gives the cellctl command lines of a runbook's code blocks by its numbered steps, from 1.
func steps(t *testing.T, page string) (out [][]string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/runbooks/" + page)
	if err != nil {
		t.Fatal(err)
	}
	out, inside := [][]string{nil}, false
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "## ") {
			out = append(out, nil)
		}
		if strings.HasPrefix(line, "```") {
			inside = !inside
		} else if command, found := strings.CutPrefix(strings.TrimSpace(line), "cellctl "); found && inside {
			out[len(out)-1] = append(out[len(out)-1], command)
		}
	}
	return out
}

var commandWords = regexp.MustCompile(`'([^']*)'|(\S+)`)

// follows carries out a step of a page on a cell; ID is the operation that the last command with --no-wait
// began. Each command must exit 0, or as codes say of the word that it begins with.
func (p *local) follows(step []string, cell string, id *string, codes map[string]int) {
	p.t.Helper()
	if len(step) == 0 {
		p.t.Fatal("the step has no command")
	}
	for _, line := range step {
		var args []string
		for _, m := range commandWords.FindAllStringSubmatch(strings.NewReplacer("CELL", cell, "ID", *id).Replace(line), -1) {
			args = append(args, m[1]+m[2])
		}
		want := 0
		for begins, code := range codes {
			if strings.HasPrefix(line, begins) {
				want, args = code, append(args, "--timeout", "2s")
			}
		}
		_, errs, code := p.run(args...)
		if code != want {
			p.t.Fatalf("cellctl %s: exit %d, want %d", line, code, want)
		}
		if m := regexp.MustCompile(`operation_id (\S+)`).FindStringSubmatch(errs); m != nil && strings.Contains(line, "--no-wait") {
			*id = m[1]
		}
	}
}

// A sale by home region, and the way out of service of its cells: every command of
// docs/runbooks/draining.md is carried out. First on a cell that sells, which is somebody's home and stays;
// then on one that is nobody's, which goes. Meanwhile I1 to I4 hold at every look.
func TestDrainingRunbook(t *testing.T) {
	p := start(t, "--cells", "3", "--regions", "east,west,north")
	stop := p.check()
	p.publish(sale{ID: "regions", Limit: 300, TTL: "4s", Rules: "routing: HOME_REGION", Cells: []string{"cell-1", "cell-2"}})
	buy := func(prefix, region string) {
		t.Helper()
		if code := <-p.load(t.Context(), "--campaign", "regions", "--sku", "phone-x", "--users", "40", "--rate", "40", "--pay", "0.7", "--patience", "20s",
			"--home-region", region, "--prefix", prefix); code != 0 {
			t.Fatalf("load: exit %d", code)
		}
	}
	buy("a", "east,west")
	for cell, domain := range map[string]string{"cell-1": "east", "cell-2": "west"} {
		if out := p.must("route", "lookup", "regions", "--user", "alice", "--domain", domain); !strings.Contains(out, cell) {
			t.Errorf("alice of the %s:\n%s", domain, out)
		}
		if n := p.count("regions", "SELECT count(*) FROM cellquota.v_buckets WHERE campaign_id = $1 AND domain = '"+domain+"'"); n != 1 {
			t.Errorf("%d rows of buckets of the %s", n, domain)
		}
	}
	p.must("cell", "rebuild-mirror", "cell-2", "--campaign", "regions", "--reason", "drill", "--timeout", "60s")
	buy("b", "west")

	page, id := steps(t, "draining.md"), ""
	if len(page) != 5 {
		t.Fatalf("the page has %d steps", len(page)-1)
	}
	p.follows(page[1], "cell-2", &id, nil)
	p.follows(page[2][:2], "cell-2", &id, nil)
	testkit.Eventually(t, 40*time.Second, func() error {
		if said := p.must("op", "get", id); !strings.Contains(said, "BUCKETS") || !strings.Contains(said, "4096 buckets of campaign regions") {
			return fmt.Errorf("it is not down to its buckets:\n%s", said)
		}
		return nil
	})
	if n := p.count("regions", "SELECT coalesce(sum(available + reserved), 0) FROM cellquota.v_stock WHERE campaign_id = $1 AND sku_id = 'phone-x' AND (SELECT cell_id FROM cellquota.v_fence) = 'cell-2'"); n != 0 {
		t.Errorf("it has given back all but %d units", n)
	}
	buy("c", "east") // the other side notices nothing
	p.follows(page[2][2:], "cell-2", &id, map[string]int{"op wait": 6})
	if _, code := p.ctl("cell", "retire", "cell-2", "--yes", "--reason", "too early"); code != 4 {
		t.Errorf("retired while it has what is paid: exit %d", code)
	}
	p.follows(page[3], "cell-2", &id, nil)
	p.must("quota", "top-up", "regions", "phone-x", "cell-2", "20", "--reason", "it stays")
	buy("d", "west")

	p.follows(page[1], "cell-3", &id, nil)
	p.follows(page[2], "cell-3", &id, nil)
	p.follows(page[4], "cell-3", &id, nil)
	if out := p.must("cell", "get", "cell-3", "-o", "json"); !strings.Contains(out, `"RETIRED"`) {
		t.Errorf("%s", out)
	}
	stop()
	testkit.Eventually(t, 40*time.Second, func() error { // what is under way ends
		if out, code := p.ctl("verify", "--campaign", "regions", "--timeout", "30s"); code != 0 {
			return fmt.Errorf("verify: exit %d\n%s", code, out)
		}
		return nil
	})
}
