//go:build system || chaos

package system

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/cellquota/cellquota/deploy/local/layout"
	"github.com/cellquota/cellquota/deploy/local/ports"
	"github.com/cellquota/cellquota/internal/testkit/fault"
)

// wired is a platform whose cell-1 meets each of its neighbours over a wire that a test can hurt; what the
// checker and cellctl read does not go over them.
//
//	edges ── door ──► cell-1 ──┬── redis ───────► its Redis
//	                           ├── shard ───────► its PostgreSQL
//	                           └── plane ───────► the control plane
//	everybody ── kafka ──────────────────────────► the broker, which all cells share
type wired struct {
	*local
	door, redis, shard, plane, kafka *fault.Proxy
	choir                            *choir // of the sale under way
}

// heal makes every wire whole.
func (w *wired) heal() {
	for _, wire := range []*fault.Proxy{w.door, w.redis, w.shard, w.plane, w.kafka} {
		wire.Heal()
	}
}

// startWired brings a platform of some cells up with the wires in place. The ports that a data directory
// remembers are claimed before the platform starts, so the wires know where they lead.
func startWired(t *testing.T, cells int, args ...string) *wired {
	t.Helper()
	return startWiredIn(t, dataDir(t), cells, args...)
}

// startWiredIn is startWired in a data directory that is there already.
func startWiredIn(t *testing.T, dir string, cells int, args ...string) *wired {
	t.Helper()
	o := layout.Defaults()
	o.DataDir, o.Cells = dir, cells
	claim, err := ports.Claim(o.DataDir, layout.PortNames(o))
	if err != nil {
		t.Fatal(err)
	}
	plan, err := layout.New(o, claim.Addr)
	if err != nil {
		t.Fatal(err)
	}
	secrets, err := plan.MakeSecrets()
	if err != nil {
		t.Fatal(err)
	}
	if err := claim.Release(); err != nil {
		t.Fatal(err)
	}
	first := plan.Cells[0]
	w := &wired{
		door:  fault.New(t, first.Processes[0].Addr),
		redis: fault.New(t, first.Redis.Addr),
		shard: fault.New(t, first.Postgres.Addr),
		plane: fault.New(t, plan.ControlPlanes[0].Addr),
		kafka: fault.New(t, plan.Kafka.Addr),
	}
	args = append([]string{
		"--cells", fmt.Sprint(cells),
		"--set", first.ID + ".advertise_addr=" + w.door.Addr(),
		"--set", fmt.Sprintf("%s.redis.addrs=[%q]", first.ID, w.redis.Addr()),
		"--set", first.ID + ".shard.dsn_file=" + throughWire(t, plan.DSN(secrets, first, layout.RoleApp), w.shard),
		"--set", fmt.Sprintf("%s.control_plane.addrs=[%q]", first.ID, w.plane.Addr()),
		"--set", "kafka.advertised.listeners=PLAINTEXT://" + w.kafka.Addr(),
	}, args...)
	w.local = startIn(t, o.DataDir, args...)
	return w
}

// throughWire writes a file with the same login at the wire's address.
func throughWire(t *testing.T, dsn string, wire *fault.Proxy) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = wire.Addr()
	file := filepath.Join(t.TempDir(), "wired.dsn")
	if err := os.WriteFile(file, []byte(u.String()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

const (
	toServer = fault.ToServer
	toClient = fault.ToClient
)
