package lifecycle_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cellquota/cellquota/internal/lifecycle"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// diary records what happened, in order.
type diary struct {
	mu   sync.Mutex
	said []string
}

func (d *diary) say(s string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.said = append(d.said, s)
}

func (d *diary) read() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.said)
}

func TestShutdownOrder(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	g := lifecycle.New(ctx, quiet())
	var d diary
	g.Go("member", func(ctx context.Context) error {
		<-ctx.Done()
		d.say("member ends")
		return ctx.Err()
	})
	for _, name := range []string{"first", "second"} {
		g.OnStop(name, func(context.Context) error {
			select {
			case <-g.Stopping():
			default:
				t.Error("Stopping must be closed before the hooks")
			}
			if g.Context().Err() != nil {
				t.Error("members must live while hooks run")
			}
			d.say(name)
			return nil
		})
	}
	cancel()
	if err := g.Wait(time.Minute); err != nil {
		t.Fatal(err)
	}
	if got, want := d.read(), []string{"second", "first", "member ends"}; !slices.Equal(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
}

func TestAMemberThatFailsEndsTheGroup(t *testing.T) {
	g := lifecycle.New(t.Context(), quiet())
	boom := errors.New("boom")
	g.Go("done", func(context.Context) error { return nil })
	g.Go("worker", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
	g.Go("broken", func(context.Context) error { return boom })
	err := g.Wait(time.Minute)
	if !errors.Is(err, boom) || !strings.Contains(err.Error(), "broken: boom") {
		t.Fatalf("got %v", err)
	}
	if strings.Contains(err.Error(), "worker") {
		t.Fatalf("a member that stopped when told has not failed: %v", err)
	}
}

func TestAMemberThatIsDoneDoesNotEndTheGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		g := lifecycle.New(ctx, quiet())
		g.Go("done", func(context.Context) error { return nil })
		waited := make(chan error, 1)
		go func() { waited <- g.Wait(time.Minute) }()
		synctest.Wait()
		select {
		case err := <-waited:
			t.Fatalf("Wait returned %v", err)
		default:
		}
		cancel()
		if err := <-waited; err != nil {
			t.Fatal(err)
		}
	})
}

func TestCanceledBeforeTheStopIsAFailure(t *testing.T) {
	g := lifecycle.New(t.Context(), quiet())
	g.Go("odd", func(context.Context) error { return context.Canceled })
	if err := g.Wait(time.Minute); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
}

func TestPanicsAreErrorsWithNames(t *testing.T) {
	var log bytes.Buffer
	g := lifecycle.New(t.Context(), slog.New(slog.NewJSONHandler(&log, nil)))
	var d diary
	g.OnStop("tidy hook", func(context.Context) error { d.say("tidy"); return nil })
	g.OnStop("wild hook", func(context.Context) error { panic("hook fell") })
	g.Go("wild member", func(context.Context) error { panic("member fell") })
	err := g.Wait(time.Minute)
	for _, want := range []string{"wild member: panic: member fell", "stop:wild hook: panic: hook fell"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
	if !slices.Equal(d.read(), []string{"tidy"}) {
		t.Error("a panic in one hook must not skip the others")
	}
	if !strings.Contains(log.String(), "group_test.go") {
		t.Error("the log must carry the stack")
	}
}

func TestGraceIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		g := lifecycle.New(ctx, quiet())
		release := make(chan struct{})
		g.Go("deaf member", func(context.Context) error { <-release; return nil })
		g.OnStop("late hook", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		g.OnStop("deaf hook", func(context.Context) error { <-release; return nil })
		cancel()
		begin := time.Now()
		err := g.Wait(8 * time.Second)
		if took := time.Since(begin); took != 8*time.Second {
			t.Errorf("took %v, want the whole grace", took)
		}
		if !errors.Is(err, lifecycle.ErrStuck) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if want := `["deaf member" "stop:deaf hook"] still running`; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
		close(release)
		synctest.Wait()
	})
}

func TestHooksHaveThreeQuarters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		g := lifecycle.New(ctx, quiet())
		g.OnStop("hook", func(ctx context.Context) error { <-ctx.Done(); return nil })
		cancel()
		begin := time.Now()
		if err := g.Wait(8 * time.Second); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took != 6*time.Second {
			t.Fatalf("took %v, want 6s", took)
		}
	})
}

func TestNoMemberAfterTheStop(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	g := lifecycle.New(ctx, quiet())
	if err := g.Wait(time.Minute); err != nil {
		t.Fatal(err)
	}
	g.Go("late", func(context.Context) error { t.Error("was started"); return nil })
}

func TestMembersStartedDuringTheStopAreWaitedFor(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	g := lifecycle.New(ctx, quiet())
	var d diary
	g.OnStop("hook", func(context.Context) error {
		g.Go("child", func(ctx context.Context) error { <-ctx.Done(); d.say("child"); return nil })
		return nil
	})
	cancel()
	if err := g.Wait(time.Minute); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(d.read(), []string{"child"}) {
		t.Fatalf("got %v", d.read())
	}
}

type key struct{}

func TestContextKeepsValuesAndOutlivesTheParent(t *testing.T) {
	parent, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "v"))
	g := lifecycle.New(parent, quiet())
	cancel()
	if g.Context().Value(key{}) != "v" || g.Context().Err() != nil {
		t.Fatal("values are kept, and the end waits for the hooks")
	}
	if err := g.Wait(time.Minute); err != nil || g.Context().Err() == nil {
		t.Fatalf("got %v", err)
	}
}

func TestSignalContextEndsOnSIGTERM(t *testing.T) {
	ctx, stop := lifecycle.SignalContext(t.Context())
	defer stop()
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()
}
