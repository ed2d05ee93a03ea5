// Command cellctl operates a Cellquota platform; controlplane/ctl has its commands.
package main

import (
	"context"
	"os"
	"path/filepath"

	"golang.org/x/term"

	"github.com/cellquota/cellquota/controlplane/ctl"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/lifecycle"
)

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	ctx, stop := lifecycle.SignalContext(context.Background())
	defer stop()
	self, _ := os.Executable()        // without it the demo looks for cellquota-dev in PATH
	config, err := os.UserConfigDir() // $XDG_CONFIG_HOME, or ~/.config
	if err != nil {
		config = "" // no home: no contexts
	}
	return ctl.Run(ctx, args, ctl.Program{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Clock: clock.System(), Env: os.Getenv, Self: self,
		Terminal:   term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stdout.Fd())),
		ConfigFile: filepath.Join(config, "cellquota", "config.yaml"),
	})
}
