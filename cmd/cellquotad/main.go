// Command cellquotad is every server of Cellquota: a control-plane replica, a process of a cell, an
// edge; and the schema of a cell's shard.
package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/cellquota/cellquota/cell"
	"github.com/cellquota/cellquota/controlplane"
	"github.com/cellquota/cellquota/edge"
	"github.com/cellquota/cellquota/internal/config"
	"github.com/cellquota/cellquota/internal/lifecycle"
)

// Exit codes, as cellctl's.
const (
	exitDone       = 0
	exitUnexpected = 1
	exitUsage      = 2
)

// errUsage is a command line or a configuration that cannot be used.
var errUsage = errors.New("wrong usage")

// command is one sub-command.
type command struct {
	short string
	run   func(ctx context.Context, args []string) error
}

// commands are the sub-commands, by name.
var commands = map[string]command{
	"controlplane": {"a control-plane replica", server("controlplane", controlplane.Run)},
	"cell":         {"one process of a cell (--roles says what it does)", server("cell", cell.Run)},
	"edge":         {"an HTTP entrance", server("edge", edge.Run)},
	"migrate":      {"a shard's schema: up, check, create-roles", migrate},
}

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	ctx, stop := lifecycle.SignalContext(context.Background())
	defer stop()
	err := dispatch(ctx, args)
	switch {
	case err == nil, errors.Is(err, config.ErrHandled):
		return exitDone
	case errors.Is(err, errUsage):
		fmt.Fprintln(os.Stderr, "cellquotad:", err)
		return exitUsage
	default:
		fmt.Fprintln(os.Stderr, "cellquotad:", err)
		return exitUnexpected
	}
}

func dispatch(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("%w: a command is missing\n\n%s", errUsage, usage())
	}
	if slices.Contains([]string{"help", "--help", "-h"}, args[0]) {
		fmt.Print(usage())
		return nil
	}
	c, ok := commands[args[0]]
	if !ok {
		return fmt.Errorf("%w: no command %q\n\n%s", errUsage, args[0], usage())
	}
	return c.run(ctx, args[1:])
}

func usage() string {
	var b strings.Builder
	b.WriteString("Usage: cellquotad COMMAND [--config file.yaml] [flags]\n\n")
	for _, name := range slices.Sorted(maps.Keys(commands)) {
		fmt.Fprintf(&b, "  %-14s %s\n", name, commands[name].short)
	}
	b.WriteString("\nEvery key of a configuration file is also a flag and a CELLQUOTA_… variable; cellquotad COMMAND --help lists them.\n")
	return b.String()
}

// known are the keys of all servers: the environment of one reaches them all.
func known() []string {
	return slices.Concat(config.Keys[controlplane.Config](), config.Keys[cell.Config](), config.Keys[edge.Config]())
}

// server reads a configuration and runs a server by it.
func server[T any](name string, serve func(context.Context, T) error) func(context.Context, []string) error {
	return func(ctx context.Context, args []string) error {
		cfg, err := config.Load[T](args, config.Options{
			Program: "cellquotad " + name, Known: known(), KnownEnv: []string{"CELLQUOTA_ENDPOINTS", "CELLQUOTA_CONTEXT", "CELLQUOTA_CONFIG"},
		})
		if errors.Is(err, config.ErrHandled) {
			return err
		}
		if err != nil {
			return fmt.Errorf("%w: %w", errUsage, err)
		}
		return serve(ctx, cfg)
	}
}
