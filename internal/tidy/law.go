package tidy

import "strings"

// room is a row of the import law: a folder, and what its Go files may import.
// The most exact row counts, so that a room inside a room can be stricter or
// laxer than what surrounds it. A trailing /... means "and below".
type room struct {
	dir  string
	may  []string // packages of ours
	pure bool     // of others only the standard library, and of that nothing that does I/O
	not  []string // packages of others that it must not import, as prefixes
}

// leaves are what every component may import: pure arithmetic and rules.
var leaves = []string{"allocator", "allocator/quantity", "allocator/evidence", "fencing"}

// drivers are the stores' and streams' own packages.
var drivers = []string{
	"github.com/jackc/pgx", "github.com/redis/go-redis", "go.etcd.io/etcd", "github.com/twmb/franz-go", "database/sql", "github.com/pressly/goose",
}

// rooms is the import law (architecture: cmd → root → api → core ← stores and
// streams; components meet in proto and through each other's client).
var rooms = []room{
	{dir: "proto/...", may: list("proto/...")},

	// Leaves: the standard library, and each other's unit type.
	{dir: "allocator/quantity", pure: true},
	{dir: "allocator", may: list("allocator/quantity"), pure: true},
	{dir: "allocator/evidence", may: list("allocator"), pure: true},
	{dir: "fencing", may: list("allocator/quantity"), pure: true},
	{dir: "fencing/fencer", may: list(leaves, "internal/...", "proto/...")},

	// The corridor knows no component.
	{dir: "internal/...", may: list("internal/...")},
	{dir: "internal/ids", may: nil, not: append(list("google.golang.org"), drivers...)},

	// The control plane. rpcstatus is the vocabulary of errors with their numbers;
	// that it also maps them to gRPC is its affair, not the core's.
	{dir: "controlplane/core", may: list(leaves, "internal/ids", "internal/rpcstatus"), pure: true},
	{dir: "controlplane/supply", may: list(leaves, "controlplane/core", "internal/ids"), pure: true},
	{dir: "controlplane/api/...", may: controlPlane, not: drivers},
	{dir: "controlplane/client/...", may: list("controlplane/client/...", "proto/...", "internal/...", leaves), not: drivers},
	{dir: "controlplane/ctl/...", may: list("controlplane/ctl/...", "controlplane/client/...", "controlplane/campaignfile", "edge/client/...", "edge/load/...", "deploy/local/platform", "proto/...", "internal/...", leaves), not: drivers},
	// The demo's witness judges the control plane, so it reads etcd and the shards itself.
	{dir: "controlplane/ctl/demo/...", may: list("controlplane/ctl/...", "controlplane/client/...", "controlplane/core", "controlplane/store", "controlplane/report/...", "edge/client/...", "edge/load/...", "deploy/local/platform", "proto/...", "internal/...", leaves), not: drivers},
	// Looking at a shard's schema means knowing which step this program has.
	{dir: "controlplane/check", may: list(controlPlane, "cell/shard/migrations")},
	{dir: "controlplane/...", may: controlPlane},

	// The cell.
	{dir: "cell/reservation", may: list(leaves, "internal/ids"), pure: true},
	{dir: "cell/gate", may: list(leaves, "internal/ids"), pure: true},
	{dir: "cell/homes", may: list(leaves, "internal/ids"), pure: true},
	{dir: "cell/api/...", may: cell, not: drivers},
	{dir: "cell/client/...", may: list("cell/client/...", "proto/...", "internal/...", leaves), not: drivers},
	{dir: "cell/...", may: cell},

	// The edge keeps nothing, so it has no driver; the load generator's oracle
	// reads the shards.
	{dir: "edge/route", may: list(leaves, "internal/ids"), pure: true},
	{dir: "edge/client/...", may: list("edge/client/...", "proto/...", "internal/...", leaves), not: drivers},
	{dir: "edge/load/...", may: list("edge/load/...", "edge/client/...", "proto/...", "internal/...", leaves)},
	{dir: "edge/...", may: list("edge/...", "cell/client/...", "controlplane/client/...", "proto/...", "internal/...", leaves), not: drivers},

	// Programs: a page of main each.
	{dir: "cmd/cellquotad/...", may: list("cmd/cellquotad/...", "controlplane", "cell", "edge", "cell/shard/migrate", "internal/...")},
	{dir: "cmd/cellctl/...", may: list("cmd/cellctl/...", "controlplane/ctl/...", "internal/...")},
	{dir: "cmd/cellquota-dev/...", may: list("cmd/cellquota-dev/...", "deploy/...", "internal/...")},
	{dir: "deploy/...", may: list("deploy/...", "internal/...")},

	// Tests see everything, and nothing sees them.
	{dir: "tests/...", may: list("tests/...", "allocator/...", "fencing/...", "controlplane/...", "cell/...", "edge/...", "deploy/...", "proto/...", "internal/...")},
	{dir: "docs/drift", may: list("controlplane/...", "cell/...", "edge/...", "proto/...", "internal/...")},
}

var (
	controlPlane = list("controlplane/...", "fencing/fencer", "cell/client/...", "proto/...", "internal/...", leaves)
	cell         = list("cell/...", "controlplane/client/...", "proto/...", "internal/...", leaves)
)

// testsMay is what every _test file may import besides what its room may and what
// lies in its own folder: the real servers, and the real schema of a shard.
var testsMay = list("internal/testkit/...", "cell/shard/migrate", "cell/shard/migrations")

// noIO are the parts of the standard library that a pure room does without: it
// takes values, the time among them, and returns values.
var noIO = []string{
	"context", "crypto/rand", "database/sql", "io/ioutil", "log", "math/rand", "net", "os", "os/exec", "path/filepath", "sync/atomic", "syscall", "testing",
}

// list joins patterns and lists of patterns.
func list(parts ...any) []string {
	var all []string
	for _, p := range parts {
		switch p := p.(type) {
		case string:
			all = append(all, p)
		case []string:
			all = append(all, p...)
		}
	}
	return all
}

// roomOf is the row for a folder, or nil. An exact row counts before one with
// /..., a longer one before a shorter.
func roomOf(dir string) *room {
	var best *room
	for i := range rooms {
		r := &rooms[i]
		if r.dir == dir {
			return r
		}
		if covers(r.dir, dir) && (best == nil || len(r.dir) > len(best.dir)) {
			best = r
		}
	}
	return best
}

// covers reports whether a pattern stands for the folder or import path.
func covers(pattern, name string) bool {
	base, below := strings.CutSuffix(pattern, "/...")
	return name == base || below && strings.HasPrefix(name, base+"/")
}

func coversAny(patterns []string, name string) bool {
	for _, p := range patterns {
		if covers(p, name) {
			return true
		}
	}
	return false
}
