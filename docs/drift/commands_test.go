package drift

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/cellquota/cellquota/controlplane/ctl"
	"github.com/cellquota/cellquota/internal/clock"
)

// TestMakeTargets looks every `make TARGET` of every page up in the Makefile.
func TestMakeTargets(t *testing.T) {
	t.Parallel()
	r := house(t)
	targets := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^([a-z][a-z-]*):`).FindAllStringSubmatch(r.read(t, "Makefile"), -1) {
		targets[m[1]] = true
	}
	seen := 0
	for _, page := range r.pages {
		for _, m := range regexp.MustCompile("(?m)(?:^|`)\\s*make ([a-z][a-z-]+)").FindAllStringSubmatch(r.read(t, page), -1) {
			seen++
			if !targets[m[1]] {
				t.Errorf("%s shows make %s; the Makefile has no such target", page, m[1])
			}
		}
	}
	if seen < 5 {
		t.Errorf("only %d make commands were found: the pattern is broken", seen)
	}
}

// commandLine finds cellctl where it starts a line or stands in back quotes.
var commandLine = regexp.MustCompile("(?m)(?:^\\s*(?:\\$ )?(?:\\.bin/)?|`)cellctl ([a-z][^`\n]*)")

// TestCommands asks cellctl's own help about every command and flag that a page shows.
func TestCommands(t *testing.T) {
	t.Parallel()
	r := house(t)
	seen := 0
	for _, page := range r.pages {
		for _, m := range commandLine.FindAllStringSubmatch(r.read(t, page), -1) {
			seen++
			checkCommand(t, page, m[1])
		}
	}
	if seen < 20 {
		t.Errorf("only %d commands were found: the pattern is broken", seen)
	}
}

var (
	word  = regexp.MustCompile(`^[a-z][a-z-]*$`)
	flags = regexp.MustCompile(`(?:^| )(--[a-z][a-z-]*)`)
)

// checkCommand follows the words of a command line as far as they are commands.
func checkCommand(t *testing.T, page, line string) {
	t.Helper()
	var path []string
	help := helpOf(t, nil)
	for _, w := range strings.Fields(line) {
		_, below, group := strings.Cut(help, "Available Commands:\n")
		if !group {
			break
		}
		if !word.MatchString(w) || !strings.Contains(below, "\n  "+w+" ") && !strings.HasPrefix(below, "  "+w+" ") {
			if len(path) == 0 || word.MatchString(w) && !strings.Contains(line, "|") {
				t.Errorf("%s: cellctl %s: there is no command %q", page, line, w)
			}
			return
		}
		path = append(path, w)
		help = helpOf(t, path)
	}
	for _, f := range flags.FindAllStringSubmatch(line, -1) {
		if !strings.Contains(help, f[1]+" ") && !strings.Contains(help, f[1]+"\n") {
			t.Errorf("%s: cellctl %s: %s has no flag %s", page, line, strings.Join(path, " "), f[1])
		}
	}
}

func helpOf(t *testing.T, path []string) string {
	t.Helper()
	var out bytes.Buffer
	code := ctl.Run(t.Context(), append(path[:len(path):len(path)], "--help"), ctl.Program{
		In: strings.NewReader(""), Out: &out, Err: &out, Clock: clock.System(), Env: func(string) string { return "" },
	})
	if code != 0 {
		t.Errorf("cellctl %s --help: exit %d", strings.Join(path, " "), code)
	}
	return out.String()
}
