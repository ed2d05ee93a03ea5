package planner_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/cellquota/cellquota/controlplane/api"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/telemetry"
	"github.com/cellquota/cellquota/internal/testkit"
)

// lines is a log that several goroutines write and a test reads.
type lines struct {
	mu  sync.Mutex
	out bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Write(p)
}

// first gives the first line of an event.
func (l *lines) first(event string) (map[string]any, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.out.String()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			return nil, err
		}
		if fields[telemetry.Event] == event {
			return fields, nil
		}
	}
	return nil, fmt.Errorf("no line of %s", event)
}

// away is a driver whose etcd does not answer.
type away struct{}

func (away) Step(context.Context, core.Leader, core.Operation) error {
	return fmt.Errorf("fence: %w", core.ErrStoreUnavailable)
}

// A step that fails is a line with the word of the error, and says that the next tick tries again.
func TestAFailedStepIsLoggedWithItsClass(t *testing.T) {
	if err := rpcstatus.Register(api.Kinds()...); err != nil {
		t.Fatal(err)
	}
	r := newRig(t)
	log := &lines{}
	r.log = telemetry.NewLogger(log, "controlplane", nil)
	r.view, r.planner = r.follow(r.store)
	r.operations.drive(away{})
	r.lead()
	r.operation("f1", core.OperationFence)
	var line map[string]any
	testkit.Eventually(t, wait, func() (err error) {
		line, err = log.first("planner_step_failed")
		return err
	})
	for name, want := range map[string]any{
		"level": "WARN", "error_class": "STORE_UNAVAILABLE", "retryable": true, "operation": "fence-cell", "operation_id": "f1", "cell_id": "c",
	} {
		if line[name] != want {
			t.Errorf("%s is %v, want %v", name, line[name], want)
		}
	}
	if text, _ := line["error"].(string); !strings.Contains(text, "fence: ") {
		t.Errorf("error is %q", text)
	}
}
