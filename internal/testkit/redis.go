package testkit

import (
	"context"
	"crypto/tls"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const redisReady = 15 * time.Second

// RedisServer is one real redis-server for one test.
type RedisServer struct {
	home *home
	port *port
	bin  string
	args []string
	// password of everybody but sentinels; "": none is asked for
	password string
	proc     *process
	paused   bool
	tls      *tls.Config // nil: plain text
}

// Redis starts a redis-server without persistence. args are added to its command
// line ("--appendonly", "yes", "--appendfsync", "always"). It is gone when the
// test ends.
func Redis(t testing.TB, args ...string) *RedisServer {
	t.Helper()
	s := newRedis(t)
	s.args = s.plainArgs(args...)
	s.Start(t)
	return s
}

// RedisTLS is Redis that speaks TLS alone, under these files, and asks its callers for
// no certificate unless args say "--tls-auth-clients", "yes".
func RedisTLS(t testing.TB, files PEMFiles, args ...string) *RedisServer {
	t.Helper()
	s := newRedis(t)
	s.tls = files.Client(t)
	s.args = s.plainArgs(append([]string{
		"--port", "0", "--tls-port", strconv.Itoa(s.port.number), "--tls-cert-file", files.Cert, "--tls-key-file", files.Key,
		"--tls-ca-cert-file", files.CA, "--tls-auth-clients", "no",
	}, args...)...)
	s.Start(t)
	return s
}

// newRedis makes a server's folder and port; it is started with its args by Start.
func newRedis(t testing.TB) *RedisServer {
	t.Helper()
	s := &RedisServer{}
	var err error
	if s.bin, err = findBinary("redis-server"); err != nil {
		t.Fatal(err)
	}
	if s.home, err = newHome("redis", nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.home.close)
	s.port = leaseFor(t)
	t.Cleanup(func() { s.stop(t, syscall.SIGKILL) })
	logTailOnFailure(t, "redis-server", s.logFile())
	return s
}

func leaseFor(t testing.TB) *port {
	t.Helper()
	p, err := leasePort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.release)
	return p
}

// plainArgs are the command line of a server without persistence.
func (s *RedisServer) plainArgs(more ...string) []string {
	return append([]string{
		"--port", strconv.Itoa(s.port.number), "--bind", "127.0.0.1", "--dir", s.home.dir,
		"--save", "", "--appendonly", "no", "--daemonize", "no", "--repl-diskless-sync-delay", "0",
	}, more...)
}

// Addr is the server's host:port; it stays the same over Stop and Start.
func (s *RedisServer) Addr() string { return s.port.addr() }

// PID is the process id of the running server.
func (s *RedisServer) PID() int { return s.proc.pid }

// Client is a new client of the server, closed when the test ends.
func (s *RedisServer) Client(t testing.TB) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: s.Addr(), Password: s.password, TLSConfig: s.tls})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Start starts the server after Stop or Kill and waits until it answers. Without
// persistence it comes up empty: no keys, no functions, no scripts.
func (s *RedisServer) Start(t testing.TB) {
	t.Helper()
	cmd := exec.Command(s.bin, s.args...)
	cmd.Dir = s.home.dir
	proc, err := startProcess(cmd, s.logFile(), syscall.SIGKILL)
	if err != nil {
		t.Fatalf("start redis-server: %v", err)
	}
	s.proc = proc
	c := redis.NewClient(&redis.Options{Addr: s.Addr(), Password: s.password, MaxRetries: -1, TLSConfig: s.tls})
	defer func() { _ = c.Close() }()
	Eventually(t, redisReady, func() error {
		if proc.ended() {
			t.Fatalf("redis-server ended: %v", proc.err) // the log follows by itself
		}
		return c.Ping(t.Context()).Err()
	})
}

// Stop shuts the server down in good order (SIGTERM).
func (s *RedisServer) Stop(t testing.TB) { t.Helper(); s.stop(t, syscall.SIGTERM) }

// Kill ends the server with SIGKILL, as a crash would.
func (s *RedisServer) Kill(t testing.TB) { t.Helper(); s.stop(t, syscall.SIGKILL) }

// Restart is Kill and Start: a server with another run id and, without
// persistence, without memory.
func (s *RedisServer) Restart(t testing.TB) {
	t.Helper()
	s.Kill(t)
	s.Start(t)
}

// FlushAll deletes every key, as the fat finger would; functions stay.
func (s *RedisServer) FlushAll(t testing.TB) {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: s.Addr(), Password: s.password, TLSConfig: s.tls})
	defer func() { _ = c.Close() }()
	if err := c.FlushAll(context.WithoutCancel(t.Context())).Err(); err != nil {
		t.Fatalf("FLUSHALL: %v", err)
	}
}

// Pause stops the process where it is: connections stay open and nothing answers,
// until Resume or the end of the test.
func (s *RedisServer) Pause(t testing.TB) {
	t.Helper()
	if err := s.home.pause([]int{s.proc.pid}); err != nil {
		t.Fatalf("pause redis-server: %v", err)
	}
	s.paused = true
}

// Resume lets a paused server go on; without a pause it does nothing.
func (s *RedisServer) Resume(t testing.TB) {
	t.Helper()
	if !s.paused {
		return
	}
	if err := s.home.resume([]int{s.proc.pid}); err != nil {
		t.Fatalf("resume redis-server: %v", err)
	}
	s.paused = false
}

func (s *RedisServer) stop(t testing.TB, sig syscall.Signal) {
	t.Helper()
	s.Resume(t)
	if err := s.proc.stop(sig); err != nil {
		t.Errorf("stop redis-server: %v", err)
	}
}

func (s *RedisServer) logFile() string { return s.home.path("log") }
