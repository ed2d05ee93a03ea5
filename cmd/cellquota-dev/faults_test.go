package main

import (
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cellquota/cellquota/deploy/local/platform"
	"github.com/cellquota/cellquota/internal/testkit"
)

func TestAKilledSupervisorLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	r := start(t, dir)
	e := r.ready()
	ctx := testkit.Deadline(t)
	// A backend that is at work, and one whole server that stands still.
	conn, err := pgx.Connect(ctx, e.Cells[0].PostgresSuperuser)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "BEGIN"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"cell-1/postgres", "etcd"} {
		if _, err := r.client.Kill(ctx, name, platform.STOP); err != nil {
			t.Fatal(err)
		}
	}
	if len(left(t, dir)) < 6 {
		t.Fatalf("the test does not see the platform's processes: %v", left(t, dir))
	}

	r.signal(syscall.SIGKILL)
	<-r.done
	nothingLeft(t, dir)

	// What it left on disk does not keep the next one from starting.
	again := start(t, dir)
	if now := again.ready(); withoutPIDs(t, now) != withoutPIDs(t, e) {
		t.Error("addresses or secrets changed")
	}
}

func TestWhatDiesIsRestartedUnlessItWasKilledOnPurpose(t *testing.T) {
	dir := t.TempDir()
	r := start(t, dir, "--processes", "2", "--restart")
	before := r.ready()
	ctx := testkit.Deadline(t)

	// By itself: it comes back, and the endpoints file has its new id.
	if err := syscall.Kill(before.Cells[0].RedisPID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, stopWait, func() error {
		now, err := platform.ReadEndpoints(platform.EndpointsFile(dir))
		if err != nil {
			return err
		}
		if now.Cells[0].RedisPID == before.Cells[0].RedisPID {
			return errors.New("endpoints.json has the old process id")
		}
		return nil
	})
	r.reaches("cell-1/redis", "READY")

	// On purpose: it stays down until it is started. A cell's name is its own
	// processes, not its stores.
	killed, err := r.client.Kill(ctx, "cell-1", platform.KILL)
	if err != nil {
		t.Fatal(err)
	}
	if names := namesOf(killed); !slices.Equal(names, []string{"cell-1/p1", "cell-1/p2"}) {
		t.Errorf("cell-1 is %v", names)
	}
	for _, p := range killed {
		if p.State != "HELD" || syscall.Kill(p.PID, 0) == nil {
			t.Errorf("%s is %s, process %d; want it gone", p.Name, p.State, p.PID)
		}
	}
	if p := r.process("cell-1/postgres"); p.State != "READY" {
		t.Errorf("cell-1/postgres is %s", p.State)
	}
	if _, err := r.client.Start(ctx, "cell-1"); err != nil {
		t.Fatal(err)
	}
	r.reaches("cell-1/p1", "READY")
	r.reaches("cell-1/p2", "READY")

	// A server with processes of its own, and a client that does not leave, goes
	// and comes back whole either way.
	for _, signal := range []platform.Signal{platform.KILL, platform.TERM} {
		conn, err := pgx.Connect(ctx, before.Cells[0].PostgresSuperuser)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(ctx)
		if _, err := r.client.Kill(ctx, "cell-1/postgres", signal); err != nil {
			t.Fatal(err)
		}
		r.reaches("cell-1/postgres", platform.StateHeld)
		if _, err := r.client.Start(ctx, "cell-1/postgres"); err != nil {
			t.Fatal(err)
		}
		r.reaches("cell-1/postgres", platform.StateReady)
	}
}

func namesOf(list []platform.Process) []string {
	var names []string
	for _, p := range list {
		names = append(names, p.Name)
	}
	return names
}

func TestWithoutRestartWhatDiesStaysDown(t *testing.T) {
	dir := t.TempDir()
	r := start(t, dir)
	e := r.ready()
	ctx := testkit.Deadline(t)
	if err := syscall.Kill(e.Edges[0].PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if p := r.reaches("edge-1", "DOWN"); p.Starts != 1 {
		t.Errorf("edge-1 was started %d times", p.Starts)
	}
	if _, err := r.client.Kill(ctx, "edge-1", platform.STOP); !errors.Is(err, platform.ErrNotAlive) {
		t.Errorf("STOP of a process that is down: %v, want ErrNotAlive", err)
	}
	if _, err := r.client.Kill(ctx, "edge-9", platform.KILL); !errors.Is(err, platform.ErrUnknownProcess) {
		t.Errorf("kill of an unknown process: %v, want ErrUnknownProcess", err)
	}
	if _, err := r.client.Kill(ctx, "edge-1", "HUP"); !errors.Is(err, platform.ErrInvalid) {
		t.Errorf("an unknown signal: %v, want ErrInvalid", err)
	}

	// Another supervisor of the same directory is refused and disturbs nothing.
	second := start(t, dir)
	if code := second.wait(); code != exitUsage || !strings.Contains(second.out.String(), "another platform runs") {
		t.Errorf("second supervisor: exit %d, %s", code, second.out.String())
	}
	if _, err := platform.ReadEndpoints(platform.EndpointsFile(dir)); err != nil {
		t.Error(err)
	}
}

func TestTwoPlatformsAtOnce(t *testing.T) {
	dirs := []string{openDir(t), openDir(t)}
	rigs := []*rig{
		start(t, dirs[0]),
		start(t, dirs[1], "--set", "etcd.auto-compaction=0", "--set", "kafka.message.max.bytes=2000000",
			"--set", "redis.maxmemory=64mb", "--set", "postgres.synchronous_commit=off"),
	}
	seen := map[string]bool{}
	for _, r := range rigs {
		e := r.ready()
		for _, addr := range []string{e.Etcd.Endpoints[0], e.Kafka.Brokers[0], e.Cells[0].Redis, e.Cells[0].GRPC, e.Edges[0].HTTP} {
			if seen[addr] {
				t.Errorf("both platforms have %s", addr)
			}
			seen[addr] = true
		}
	}
	rigs[0].signal(syscall.SIGINT)
	if code := rigs[0].wait(); code != 0 {
		t.Errorf("SIGINT: exit code %d, want 0", code)
	}
	nothingLeft(t, dirs[0])
	if p := rigs[1].process("cell-1/p1"); p.State != "READY" {
		t.Errorf("the other platform's cell is %s", p.State)
	}
}

// openDir is a data directory that everybody may enter, as /tmp/x is: there
// PostgreSQL needs no handle.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cellquota-dev-") //nolint:usetesting // the parent of t.TempDir is closed to others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestAStartThatFailsSaysWhyAndLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("CELLQUOTA_TEST_FAIL", "cell") // reaches every child
	r := start(t, dir)
	if code := r.wait(); code != exitUnexpected {
		t.Errorf("exit code %d, want %d", code, exitUnexpected)
	}
	for _, want := range []string{"cell-1/p1 ended before it was ready (exit status 3)", "the cell was told to fail"} {
		if !strings.Contains(r.out.String(), want) {
			t.Errorf("said %q, want %q in it", r.out.String(), want)
		}
	}
	nothingLeft(t, dir)
}

func TestAStartThatIsCutOffCanBeRepeated(t *testing.T) {
	dir := t.TempDir()
	for _, after := range []string{
		"data/etcd/member/wal", "data/cell-1/postgres/data.new", "data/etcd/member/snap/db",
		"data/cell-1/postgres/data", "data/etcd.made", "known-cell-1",
	} {
		r := start(t, dir)
		testkit.Eventually(t, bootWait, func() error {
			_, err := os.Stat(dir + "/" + after)
			return err
		})
		r.signal(syscall.SIGKILL)
		<-r.done
		nothingLeft(t, dir)
	}
	start(t, dir).ready()
}
