package drift

import (
	"go/ast"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	links    = regexp.MustCompile(`\[([^\]]*)\]\(([^)\s]+)\)`)
	fences   = regexp.MustCompile("(?s)```.*?```")
	testName = regexp.MustCompile(`^(Test|Fuzz|Benchmark|Example)\w*$`)
)

// TestLinks follows every relative link of every page.
func TestLinks(t *testing.T) {
	t.Parallel()
	r := house(t)
	followed := 0
	for _, page := range r.pages {
		for _, m := range links.FindAllStringSubmatch(fences.ReplaceAllString(r.read(t, page), ""), -1) {
			text, target := m[1], m[2]
			if strings.Contains(target, "://") || strings.HasPrefix(target, "#") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			followed++
			r.follow(t, page, text, target)
		}
	}
	if followed < 50 {
		t.Errorf("only %d links were followed: the pages or the pattern are broken", followed)
	}
}

func (r *repository) follow(t *testing.T, page, text, target string) {
	t.Helper()
	target, _, _ = strings.Cut(target, "#")
	name := path.Join(path.Dir(page), target)
	info, err := os.Stat(filepath.Join(r.dir, filepath.FromSlash(name)))
	if err != nil {
		t.Errorf("%s: [%s] leads to %s, which is not there", page, text, name)
		return
	}
	code, quoted := strings.CutPrefix(text, "`")
	code, closed := strings.CutSuffix(code, "`")
	if !quoted || !closed || info.IsDir() {
		return
	}
	if testName.MatchString(code) {
		if !declares(r.code[name], code) {
			t.Errorf("%s: %s declares no %s", page, name, code)
		}
		return
	}
	if strings.HasSuffix(target, code) {
		return // the text is the file's own name
	}
	if !strings.Contains(r.read(t, name), code) {
		t.Errorf("%s: %q does not stand in %s", page, code, name)
	}
}

func declares(file *ast.File, test string) bool {
	if file == nil {
		return false
	}
	for _, d := range file.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == test {
			return true
		}
	}
	return false
}
