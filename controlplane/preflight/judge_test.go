package preflight

import (
	"errors"
	"slices"
	"testing"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/ids"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// TestJudge: what is missing is named; the lowest build of the mirrors is told.
func TestJudge(t *testing.T) {
	good := &pb.ShadowResponse{ServedVersion: 3, Keys: []string{"permit/k1"}, Skus: []*pb.ShadowSku{
		{Build: &pb.Build{FenceVersion: 2, Count: 1}}, {Build: &pb.Build{FenceVersion: 1, Count: 9}},
	}}
	for _, row := range []struct {
		name    string
		version int64
		keys    []string
		got     *pb.ShadowResponse
		err     error
		faults  []string
	}{
		{"ready", 3, []string{"permit/k1"}, good, nil, nil},
		{"behind", 4, nil, good, nil, []string{"serves version 3, the newest is 4"}},
		{"ahead of this view", 2, nil, good, nil, nil},
		{"a key is missing", 3, []string{"permit/k2"}, good, nil, []string{"lacks the key permit/k2"}},
		{"its own fault", 3, nil, &pb.ShadowResponse{ServedVersion: 3, Faults: []string{"x"}}, nil, []string{"x"}},
		{"silent", 3, nil, nil, errors.New("gone"), []string{"does not answer: gone"}},
	} {
		got := judgeCell("cell-1", "p1", row.version, row.keys, row.got, row.err)
		if !slices.Equal(got.Faults, row.faults) || got.Ready() != (len(row.faults) == 0) {
			t.Errorf("%s: %q, want %q", row.name, got.Faults, row.faults)
		}
	}
	if b := judgeCell("c", "p", 3, nil, good, nil).Build; b != (ids.Build{Fence: 1, Count: 9}) {
		t.Errorf("build %s", b)
	}
	c := core.Campaign{Version: 3, ModRevision: 50}
	if r := judgeEdge("e", 50, c); !r.Ready() || r.Version != 3 {
		t.Errorf("an edge at the revision: %+v", r)
	}
	if r := judgeEdge("e", 49, c); r.Ready() || r.Version != 0 {
		t.Errorf("an edge behind: %+v", r)
	}
	if got := active([]core.Key{{Use: "permit", KID: "a", State: "ACTIVE"}, {Use: "permit", KID: "b", State: "RETIRING"}, {Use: "payment", KID: "c", State: "ACTIVE"}}); !slices.Equal(got, []string{"permit/a"}) {
		t.Errorf("keys that must be held: %v", got)
	}
}
