package testkit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// The yardsticks of benchmarks: the stores' own load generators, on the same servers.

// Benchmark lets redis-benchmark call one command so many times, pipelined, and
// returns its calls per second. __rand_int__ in an argument becomes twelve digits,
// others in each place and call.
func (s *RedisServer) Benchmark(t testing.TB, calls, pipeline int, command ...string) float64 {
	t.Helper()
	const keyspace = 2_000_000_000 // as good as never the same twice; it takes no more
	args := append([]string{
		"-h", "127.0.0.1", "-p", strconv.Itoa(s.port.number), "-n", strconv.Itoa(calls), "-P", strconv.Itoa(pipeline),
		"-r", strconv.Itoa(keyspace), "--csv",
	}, command...)
	out := yardstick(t, "redis-benchmark", args...)
	found := rateInCSV.FindStringSubmatch(out)
	if found == nil {
		t.Fatalf("redis-benchmark said: %s", out)
	}
	rate, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return rate
}

// CPU is the processor time that the server has used.
func (s *RedisServer) CPU(t testing.TB) time.Duration {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: s.Addr()})
	defer func() { _ = c.Close() }()
	info, err := c.Info(t.Context(), "cpu").Result()
	if err != nil {
		t.Fatal(err)
	}
	var used float64
	for _, found := range regexp.MustCompile(`used_cpu_(?:user|sys):([0-9.]+)`).FindAllStringSubmatch(info, -1) {
		seconds, err := strconv.ParseFloat(found[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		used += seconds
	}
	return time.Duration(used * float64(time.Second))
}

// rateInCSV is the first of the seven figures after the test's name, which holds the
// command as it is, line ends and quotes included.
var rateInCSV = regexp.MustCompile(`","([0-9.]+)"(?:,"[0-9.]+"){6}\s*$`)

// Monitor returns the arguments of the first command named name that the server
// runs while do does: what a program really sends, for Benchmark to repeat.
func (s *RedisServer) Monitor(t testing.TB, name string, do func()) []string {
	t.Helper()
	conn, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	read := newLines(conn)
	if _, err := io.WriteString(conn, "MONITOR\r\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := read(); err != nil || line != "+OK" {
		t.Fatalf("MONITOR: %q %v", line, err)
	}
	do()
	if err := conn.SetReadDeadline(time.Now().Add(redisReady)); err != nil {
		t.Fatal(err)
	}
	for {
		line, err := read()
		if err != nil {
			t.Fatalf("no %s was seen: %v", name, err)
		}
		if args := monitored(line); len(args) > 0 && strings.EqualFold(args[0], name) {
			return args
		}
	}
}

func newLines(r io.Reader) func() (string, error) {
	var rest []byte
	buf := make([]byte, 64<<10)
	return func() (string, error) {
		for {
			if line, after, ok := bytes.Cut(rest, []byte("\r\n")); ok {
				rest = after
				return string(line), nil
			}
			n, err := r.Read(buf)
			if err != nil {
				return "", err
			}
			rest = append(rest, buf[:n]...)
		}
	}
}

// quotedArgument is one argument as MONITOR shows it, escaped as in C.
var quotedArgument = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

func monitored(line string) []string {
	_, command, _ := strings.Cut(line, "] ")
	var out []string
	for _, quoted := range quotedArgument.FindAllString(command, -1) {
		arg, err := strconv.Unquote(quoted)
		if err != nil {
			return nil
		}
		out = append(out, arg)
	}
	return out
}

// Pgbench lets so many clients of pgbench, as role, run a script (prepared mode,
// one transaction each time) total times in all and returns transactions per second.
func (db *Database) Pgbench(t testing.TB, role, script string, clients, total int) float64 {
	t.Helper()
	file, err := os.CreateTemp(t.TempDir(), "*.pgbench")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString(script); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	out := yardstick(t, "pgbench", "-n", "-M", "prepared", "-c", strconv.Itoa(clients), "-t", strconv.Itoa(max(1, total/clients)),
		"-f", file.Name(), db.As(role))
	found := regexp.MustCompile(`tps = ([0-9.]+)`).FindStringSubmatch(out)
	if found == nil || !strings.Contains(out, "number of failed transactions: 0") {
		t.Fatalf("pgbench said: %s", out)
	}
	rate, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return rate
}

// yardstick runs a program to its end and returns what it printed.
func yardstick(t testing.TB, name string, args ...string) string {
	t.Helper()
	path, err := findBinary(name)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
	return string(out)
}

// CPU is the processor time that the server has used, all its processes and those
// that have ended.
func (pg *PG) CPU(t testing.TB) time.Duration {
	t.Helper()
	const tick = 10 * time.Millisecond // USER_HZ is 100 on every platform that Linux has
	var used time.Duration
	for _, pid := range pg.server.proc.tree() {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue // it has ended, and is its parent's now
		}
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		for _, field := range fields[11:15] { // utime stime cutime cstime
			ticks, err := strconv.Atoi(field)
			if err != nil {
				t.Fatal(err)
			}
			used += time.Duration(ticks) * tick
		}
	}
	return used
}

// FsyncLatency is the median time that this machine takes to make 8 KiB, written at
// the end of a file where the server's log is, safe on disk: what a commit waits for.
func (pg *PG) FsyncLatency(t testing.TB) time.Duration {
	t.Helper()
	const writes = 51
	f, err := os.CreateTemp(pg.server.home.dir, "fsync")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { err = errors.Join(f.Close(), os.Remove(f.Name())) }()
	took := make([]float64, writes)
	for i := range took {
		began := time.Now()
		if _, err := f.Write(make([]byte, 8<<10)); err != nil {
			t.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
		took[i] = float64(time.Since(began))
	}
	return time.Duration(median(took))
}
