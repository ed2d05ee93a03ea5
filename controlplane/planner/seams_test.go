package planner_test

import (
	"context"
	"errors"
	"testing"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/planner"
)

type stepped struct{ ops []string }

func (s *stepped) Step(_ context.Context, _ core.Leader, op core.Operation) error {
	s.ops = append(s.ops, op.ID)
	return nil
}

// TestByKind: an operation goes to the driver of its kind and to no other; one that nobody knows waits.
func TestByKind(t *testing.T) {
	var fences, moves stepped
	mux := planner.ByKind{core.OperationFence: &fences, core.OperationTransfer: &moves}
	for _, op := range []core.Operation{{ID: "f", Kind: core.OperationFence}, {ID: "t", Kind: core.OperationTransfer}} {
		if err := mux.Step(t.Context(), core.Leader{}, op); err != nil {
			t.Fatal(err)
		}
	}
	if len(fences.ops) != 1 || fences.ops[0] != "f" || len(moves.ops) != 1 || moves.ops[0] != "t" {
		t.Fatalf("fences got %v, moves got %v", fences.ops, moves.ops)
	}
	if err := mux.Step(t.Context(), core.Leader{}, core.Operation{Kind: "of-tomorrow"}); !errors.Is(err, planner.ErrNoDriver) {
		t.Fatalf("an unknown kind: %v", err)
	}
}
