// Command cellquota-dev runs a whole local platform under one supervisor, each
// component a process of its own. It is a program apart from cellquotad, so
// that the servers it embeds never reach production binaries.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/cellquota/cellquota/internal/lifecycle"
)

// Exit codes, as cellctl's.
const (
	exitDone       = 0
	exitUnexpected = 1
	exitUsage      = 2
)

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	ctx, stop := lifecycle.SignalContext(context.Background())
	defer stop()
	root := &cobra.Command{
		Use:           "cellquota-dev",
		Short:         "A whole local Cellquota platform on this machine",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddCommand(upCommand(), etcdCommand(), kafkaCommand(), apacheKafkaCommand())
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitDone
	}
	fmt.Fprintln(os.Stderr, "cellquota-dev:", err)
	return exitCode(err)
}
