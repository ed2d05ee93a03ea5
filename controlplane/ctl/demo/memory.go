package demo

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/cellquota/cellquota/deploy/local/platform"
)

// Peak is the most memory that a process held at one moment (VmHWM).
type Peak struct {
	Process string `json:"process"`
	Bytes   int64  `json:"peak_bytes"`
}

// peaks remembers the highest mark of each process over its lives.
type peaks map[string]int64

// look reads every process of the platform and this one. A process that ended meanwhile keeps the mark
// it had. For PostgreSQL it is the server's first process, without its connections' own.
func (p peaks) look(ctx context.Context, c *platform.Client) {
	p.note("cellctl (customers and witness)", os.Getpid())
	list, err := c.Processes(ctx)
	if err != nil {
		return // the next look is seconds away
	}
	for _, proc := range list {
		p.note(proc.Name, proc.PID)
	}
}

func (p peaks) note(name string, pid int) {
	if bytes, ok := highWater(fmt.Sprintf("/proc/%d/status", pid)); ok {
		p[name] = max(p[name], bytes)
	}
}

// sorted lists them by name.
func (p peaks) sorted() []Peak {
	out := make([]Peak, 0, len(p))
	for name, bytes := range p {
		out = append(out, Peak{name, bytes})
	}
	slices.SortFunc(out, func(a, b Peak) int { return cmp.Compare(a.Process, b.Process) })
	return out
}

// highWater reads VmHWM, which the kernel gives in kB.
func highWater(file string) (int64, bool) {
	f, err := os.Open(file)
	if err != nil {
		return 0, false
	}
	defer func() { _ = f.Close() }() // only read
	for lines := bufio.NewScanner(f); lines.Scan(); {
		rest, ok := strings.CutPrefix(lines.Text(), "VmHWM:")
		if !ok {
			continue
		}
		kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
		return kb * 1024, err == nil
	}
	return 0, false
}
