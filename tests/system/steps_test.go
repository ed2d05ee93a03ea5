//go:build system || chaos

package system

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/cellquota/cellquota/deploy/local/platform"
	"github.com/cellquota/cellquota/internal/testkit"
)

// kill sends SIGKILL by process id, as a crash would; the supervisor restarts it.
func (p *local) kill(name string) {
	p.t.Helper()
	list, err := p.Processes(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	for _, x := range list {
		if x.Name == name && x.PID > 0 {
			p.t.Logf("kill -9 %s (%d)", name, x.PID)
			if err := syscall.Kill(x.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				p.t.Fatal(err)
			}
			return
		}
	}
	p.t.Fatalf("no process %s in %+v", name, list)
}

// down kills a process that is then kept down; started starts it.
func (p *local) down(name string) {
	p.t.Helper()
	if _, err := p.Kill(p.t.Context(), name, platform.KILL); err != nil {
		p.t.Fatal(err)
	}
}

func (p *local) started(name string) {
	p.t.Helper()
	if _, err := p.Start(p.t.Context(), name); err != nil {
		p.t.Fatal(err)
	}
}

// allReady waits until every process is up and ready again.
func (p *local) allReady() {
	p.t.Helper()
	testkit.Eventually(p.t, 60*time.Second, func() error {
		list, err := p.Processes(p.t.Context())
		if err != nil {
			return err
		}
		for _, x := range list {
			if x.State != platform.StateReady {
				return fmt.Errorf("%s is %s (%s)", x.Name, x.State, x.Exit)
			}
		}
		return nil
	})
}

// quiet waits until nothing is reserved any more: every order is paid or closed.
func (p *local) quiet(campaign string) {
	p.t.Helper()
	testkit.Eventually(p.t, 120*time.Second, func() error {
		if s := p.sold(campaign + "/phone-x"); s.reserved > 0 {
			return fmt.Errorf("not quiet: %s", s)
		}
		return nil
	})
	if out, code := p.ctl("verify", "--campaign", campaign, "-o", "json"); code != 0 {
		p.t.Errorf("verify: exit %d\n%s", code, strings.TrimSpace(out))
	}
}
