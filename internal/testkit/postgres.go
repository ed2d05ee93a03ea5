package testkit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

const postgresReady = 30 * time.Second

// pgServer is one PostgreSQL server: its directory, its port and, while it runs,
// its process.
type pgServer struct {
	home    *home
	port    *port
	program string // postgres
	initer  string // initdb
	cred    *syscall.Credential
	conf    []string // the program's arguments
	proc    *process
}

// fastSettings trade what only a crash of the machine would show for speed.
var fastSettings = map[string]string{
	"fsync": "off", "full_page_writes": "off", "max_connections": "300", "shared_buffers": "64MB", "max_wal_size": "512MB",
	"checkpoint_timeout": "1h", "unix_socket_directories": "", "listen_addresses": "127.0.0.1", "timezone": "UTC",
	"jit": "off", "log_min_messages": "warning", "log_line_prefix": "%m [%p] %a ", "autovacuum_naptime": "10s",
}

// newPostgres runs initdb and starts the server; settings override fastSettings.
func newPostgres(settings map[string]string) (*pgServer, error) {
	s := &pgServer{}
	var err error
	if s.program, err = findBinary("postgres"); err != nil {
		return nil, err
	}
	if s.initer, err = findBinary("initdb"); err != nil {
		return nil, err
	}
	if s.cred, err = serverCredential(); err != nil {
		return nil, err
	}
	if s.home, err = newHome("postgres", s.cred); err != nil {
		return nil, err
	}
	if s.port, err = leasePort(); err != nil {
		return nil, errors.Join(err, s.discard())
	}
	s.conf = s.arguments(settings)
	if err := s.initdb(); err != nil {
		return nil, errors.Join(err, s.discard())
	}
	if err := s.start(); err != nil {
		return nil, errors.Join(err, s.discard())
	}
	return s, nil
}

func (s *pgServer) arguments(settings map[string]string) []string {
	args := []string{"-D", s.home.path("data"), "-p", fmt.Sprint(s.port.number)}
	for _, set := range []map[string]string{fastSettings, settings} {
		for name, value := range set {
			args = append(args, "-c", name+"="+value)
		}
	}
	return args
}

func (s *pgServer) initdb() error {
	cmd := s.command(s.initer, "-D", s.home.path("data"), "-U", "postgres",
		"--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	return nil
}

func (s *pgServer) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = s.home.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.home.dir, "LC_ALL=C"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.cred, Pdeathsig: syscall.SIGKILL}
	return cmd
}

// start starts the server and waits until it answers. A server that was killed
// may have left children that hold its memory for a moment, so a start that ends
// at once is tried again while time lasts.
func (s *pgServer) start() error {
	return poll(context.Background(), postgresReady, func() error {
		if s.proc == nil || s.proc.ended() {
			proc, err := startProcess(s.command(s.program, s.conf...), s.logFile(), syscall.SIGQUIT)
			if err != nil {
				return err
			}
			s.proc = proc
		}
		if err := s.ping(); err != nil {
			return fmt.Errorf("PostgreSQL does not answer: %w\n%s", err, tailOf(s.logFile()))
		}
		return nil
	})
}

func (s *pgServer) ping() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.dsn("postgres", "postgres"))
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

func (s *pgServer) dsn(role, database string) string {
	return fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable", role, s.port.addr(), database)
}

func (s *pgServer) logFile() string { return s.home.path("log") }

// discard ends the server without ceremony and removes what it had.
func (s *pgServer) discard() error {
	err := s.proc.stop(syscall.SIGQUIT) // immediate: its data is thrown away
	if s.port != nil {
		s.port.release()
	}
	s.home.close()
	return err
}
