package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/jackc/pgx/v5"
	"github.com/spf13/pflag"

	"github.com/cellquota/cellquota/deploy/local/platform"
	"github.com/cellquota/cellquota/internal/lifecycle"
)

// exitError is a neighbour's exit code.
type exitError struct {
	code int
	text string
}

func (e exitError) Error() string { return e.text }

func neighbour(play func(context.Context, []string) error, args []string) int {
	ctx, stop := lifecycle.SignalContext(context.Background())
	defer stop()
	err := play(ctx, args)
	var exit exitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		fmt.Fprintln(os.Stderr, exit.text)
		return exit.code
	default:
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
}

// fakeCellquotad serves readiness where its configuration says, and for migrate
// makes the roles with the passwords it is given.
func fakeCellquotad(ctx context.Context, args []string) error {
	if args[0] == "migrate" {
		return fakeMigrate(ctx, args[1], args[2:])
	}
	if os.Getenv("CELLQUOTA_TEST_FAIL") == args[0] {
		return exitError{3, "the " + args[0] + " was told to fail"}
	}
	flags := pflag.NewFlagSet("cellquotad", pflag.ContinueOnError)
	file := flags.String("config", "", "")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	text, err := os.ReadFile(*file)
	if err != nil {
		return err
	}
	var config struct {
		MetricsAddr string `yaml:"metrics_addr"`
		GRPCAddr    string `yaml:"grpc_addr"`
		HTTPAddr    string `yaml:"http_addr"`
	}
	if err := yaml.Unmarshal(text, &config); err != nil {
		return err
	}
	work, err := net.Listen("tcp", config.GRPCAddr+config.HTTPAddr)
	if err != nil {
		return err
	}
	defer work.Close()
	metrics, err := net.Listen("tcp", config.MetricsAddr)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/readyz", func(http.ResponseWriter, *http.Request) {})
	server := &http.Server{Handler: mux}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.Serve(metrics); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func fakeMigrate(ctx context.Context, verb string, args []string) error {
	flags := pflag.NewFlagSet("migrate", pflag.ContinueOnError)
	dsn := flags.String("dsn-file", "", "")
	passwords := map[string]*string{}
	for _, role := range []string{"app", "fencer", "reader"} {
		passwords[role] = flags.String(role+"-password-file", "", "")
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	conn, err := connectFile(ctx, *dsn)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if verb == "up" {
		_, err := conn.Exec(ctx, `CREATE TABLE IF NOT EXISTS migrated ()`)
		return err
	}
	for role, file := range passwords {
		password, err := os.ReadFile(*file)
		if err != nil {
			return err
		}
		// Nothing but hexadecimal characters is in there.
		_, err = conn.Exec(ctx, fmt.Sprintf(`DROP ROLE IF EXISTS cellquota_%[1]s; CREATE ROLE cellquota_%[1]s LOGIN PASSWORD '%[2]s'`,
			role, strings.TrimSpace(string(password))))
		if err != nil {
			return err
		}
	}
	return nil
}

// fakeCellctl provisions a cell once: it looks for what a real one would need
// and leaves a mark.
func fakeCellctl(ctx context.Context, args []string) error {
	e, err := platform.ReadEndpoints(os.Getenv("CELLQUOTA_ENDPOINTS"))
	if err != nil {
		return err
	}
	if e.Operators["region-operator"] == "" {
		return errors.New("no token for the region operator")
	}
	conn, err := net.Dial("tcp", e.ControlPlanes[0].GRPC)
	if err != nil {
		return fmt.Errorf("control plane: %w", err)
	}
	_ = conn.Close()
	known := func(cell string) string {
		return filepath.Join(filepath.Dir(os.Getenv("CELLQUOTA_ENDPOINTS")), "known-"+cell)
	}
	if args[1] == "get" {
		_, err := os.Stat(known(args[2]))
		return err
	}
	text, err := os.ReadFile(args[3])
	if err != nil {
		return err
	}
	var cell struct {
		CellID string `yaml:"cell_id"`
		Shard  struct {
			Reader string `yaml:"reader_dsn_file"`
			Fencer string `yaml:"fencer_dsn_file"`
		} `yaml:"shard"`
	}
	if err := yaml.Unmarshal(text, &cell); err != nil {
		return err
	}
	for _, file := range []string{cell.Shard.Reader, cell.Shard.Fencer} {
		conn, err := connectFile(ctx, file)
		if err != nil {
			return err
		}
		_ = conn.Close(ctx)
	}
	mark, err := os.OpenFile(known(cell.CellID), os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return exitError{4, "ALREADY_EXISTS: " + cell.CellID}
	}
	return mark.Close()
}

func connectFile(ctx context.Context, file string) (*pgx.Conn, error) {
	dsn, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return pgx.Connect(ctx, strings.TrimSpace(string(dsn)))
}
