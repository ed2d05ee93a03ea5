package fault_test

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cellquota/cellquota/internal/testkit"
	"github.com/cellquota/cellquota/internal/testkit/fault"
)

const (
	soon  = 200 * time.Millisecond // longer than an answer takes
	ample = 10 * time.Second
)

// echo answers each line with itself.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				for lines := bufio.NewScanner(conn); lines.Scan(); {
					if _, err := fmt.Fprintln(conn, lines.Text()); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}

type client struct {
	net.Conn
	answers *bufio.Reader
}

func dial(t *testing.T, p *fault.Proxy) client {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return client{conn, bufio.NewReader(conn)}
}

// ask sends a line and waits for the answer so long.
func (c client) ask(within time.Duration, line string) (string, error) {
	if _, err := fmt.Fprintln(c, line); err != nil {
		return "", err
	}
	if err := c.SetReadDeadline(time.Now().Add(within)); err != nil {
		return "", err
	}
	got, err := c.answers.ReadString('\n')
	return strings.TrimSuffix(got, "\n"), err
}

func TestAWholeWireCarriesBothWays(t *testing.T) {
	p := fault.New(t, echo(t))
	c := dial(t, p)
	for i := range 3 {
		line := fmt.Sprint("line ", i)
		if got, err := c.ask(ample, line); err != nil || got != line {
			t.Fatalf("got %q, %v", got, err)
		}
	}
	if p.Accepted() != 1 {
		t.Errorf("%d connections", p.Accepted())
	}
}

func TestSilenceKeepsConnectionsAndLosesBytes(t *testing.T) {
	for name, way := range map[string]fault.Way{"to the server": fault.ToServer, "to the client": fault.ToClient, "both": fault.BothWays} {
		t.Run(name, func(t *testing.T) {
			p := fault.New(t, echo(t))
			old := dial(t, p)
			if _, err := old.ask(ample, "before"); err != nil {
				t.Fatal(err)
			}
			p.Silence(way)
			for _, c := range []client{old, dial(t, p)} { // a new one is taken, and as silent
				if got, err := c.ask(soon, "lost"); !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("answer %q, %v; want none", got, err)
				}
			}
			p.Heal()
			if got, err := dial(t, p).ask(ample, "after"); err != nil || got != "after" {
				t.Errorf("healed: %q, %v", got, err)
			}
			if _, err := old.ask(ample, "on a wire that lost bytes"); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("a connection that lost bytes: %v, want it broken", err)
			}
		})
	}
}

func TestABrokenWireEndsAndRefuses(t *testing.T) {
	p := fault.New(t, echo(t))
	old := dial(t, p)
	if _, err := old.ask(ample, "before"); err != nil {
		t.Fatal(err)
	}
	p.Break()
	for _, c := range []client{old, dial(t, p)} {
		if _, err := c.ask(ample, "x"); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("broken: %v, want an end", err)
		}
	}
	p.Heal()
	if got, err := dial(t, p).ask(ample, "after"); err != nil || got != "after" {
		t.Errorf("healed: %q, %v", got, err)
	}
}

func TestAResetEndsWhatIsThereAndTakesNew(t *testing.T) {
	p := fault.New(t, echo(t))
	old := dial(t, p)
	if _, err := old.ask(ample, "before"); err != nil {
		t.Fatal(err)
	}
	p.Reset()
	if _, err := old.answers.ReadString('\n'); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the old connection: %v, want a reset", err)
	}
	if got, err := dial(t, p).ask(ample, "after"); err != nil || got != "after" {
		t.Errorf("a new connection: %q, %v", got, err)
	}
}

func TestADelayIsWaitedForAndNothingIsLost(t *testing.T) {
	p := fault.New(t, echo(t))
	c := dial(t, p)
	p.Delay(soon)
	from := time.Now()
	if got, err := c.ask(ample, "late"); err != nil || got != "late" {
		t.Fatalf("got %q, %v", got, err)
	}
	if took := time.Since(from); took < 2*soon {
		t.Errorf("an answer took %s under a delay of %s each way", took, soon)
	}
	p.Delay(0)
	testkit.Eventually(t, ample, func() error {
		from := time.Now()
		if _, err := c.ask(ample, "quick"); err != nil {
			return err
		}
		if took := time.Since(from); took > soon {
			return fmt.Errorf("took %s", took)
		}
		return nil
	})
}
