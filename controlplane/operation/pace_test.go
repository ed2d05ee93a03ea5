package operation

import (
	"testing"
	"time"

	"github.com/cellquota/cellquota/internal/clock"
)

func TestPace(t *testing.T) {
	c := clock.NewManual(time.Unix(1, 0))
	p := NewPace(c, time.Second)
	if !p.Due("a") || !p.Take("a") || p.Take("a") || p.Due("a") || !p.Due("b") {
		t.Error("one look in a second, of each operation by itself")
	}
	p.Postpone("b")
	c.Advance(time.Second - 1)
	if p.Due("a") || p.Take("b") {
		t.Error("too early")
	}
	c.Advance(1)
	if !p.Due("a") || !p.Take("b") {
		t.Error("too late")
	}
	if len(p.again) != 1 {
		t.Errorf("%v: those whose time has come are kept", p.again)
	}
}
