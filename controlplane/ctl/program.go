package ctl

import (
	"context"
	"errors"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cellquota/cellquota/controlplane/ctl/render"
	"github.com/cellquota/cellquota/controlplane/ctl/target"
	"github.com/cellquota/cellquota/internal/clock"
)

// Program is what cellctl is given of its surroundings.
type Program struct {
	In       io.Reader
	Out, Err io.Writer
	Clock    clock.Clock
	Env      func(string) string
	// Terminal: a person sits at both ends, who can be asked and shown progress.
	Terminal bool
	// ConfigFile names contexts; usually ~/.config/cellquota/config.yaml.
	ConfigFile string
	// Self is the program's own path: the local platform's program lies beside it.
	Self string
}

// cli is one run of the program.
type cli struct {
	Program
	global
	format render.Format
	// began: the command line was understood and the command runs.
	began bool
}

// global are the flags of every command.
type global struct {
	output, context, endpoints, role string
	timeout                          time.Duration
	yes                              bool
}

// Run runs one command line and answers the exit code.
func Run(ctx context.Context, args []string, p Program) int {
	c := &cli{Program: p}
	root := c.root() //nolint:contextcheck // each command gets its context from ExecuteContext
	root.SetArgs(args)
	root.SetIn(p.In)
	root.SetOut(p.Out)
	root.SetErr(p.Err)
	c.mark(root)
	err := root.ExecuteContext(ctx)
	if err != nil && !c.began { // cobra's own errors have no type
		err = usage("%s", err)
	}
	code := exitCode(ctx, err)
	switch {
	case code == ExitInterrupted:
		tell(p.Err, errors.New("interrupted"))
	case err != nil:
		tell(p.Err, err)
	}
	return code
}

const rootLong = `cellctl speaks to a Cellquota control plane: provision cells, publish campaigns,
assign quota, fence and restore cells, verify the invariants.

The platform is found by --endpoints-file, --context, ` + target.EndpointsVariable + ` or the current
context of ~/.config/cellquota/config.yaml, in this order. Every command speaks as the role that it
needs; --role takes another one.

Exit codes: 0 done; 1 unexpected; 2 wrong usage or invalid input; 3 not found; 4 refused (conflict,
already exists, precondition); 5 not allowed; 6 unavailable, time-out, unchecked or still pending;
7 an invariant is broken; 130 interrupted.`

func (c *cli) root() *cobra.Command {
	root := &cobra.Command{
		Use: "cellctl", Short: "Operate a Cellquota platform", Long: rootLong,
		Example:       "  cellctl status\n  cellctl campaign publish double-eleven\n  cellctl cell fence cell-2 --reclaim --top-up --reason 'rack lost power'\n  cellctl verify",
		SilenceErrors: true, SilenceUsage: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) (err error) {
			c.format, err = render.ParseFormat(c.output)
			return err
		},
	}
	f := root.PersistentFlags()
	f.StringVarP(&c.output, "output", "o", string(render.FormatTable), strings.Join(render.Formats, ", "))
	f.StringVar(&c.context, "context", "", "named platform of the configuration file")
	f.StringVar(&c.endpoints, "endpoints-file", "", "endpoints.json of a local platform")
	f.StringVar(&c.role, "role", "", "speak as this role: "+strings.Join(target.Roles, ", "))
	f.DurationVar(&c.timeout, "timeout", 30*time.Second, "longest time for the command, waiting for its operation included")
	f.BoolVarP(&c.yes, "yes", "y", false, "do not ask for confirmation")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		if negative.MatchString(err.Error()) {
			return usage("%s: a number must not be negative", err)
		}
		return usage("%s", err)
	})
	fixed(root, "output", render.Formats...)
	fixed(root, "role", target.Roles...)
	root.AddCommand(
		c.statusCommand(), c.cellCommand(), c.campaignCommand(), c.quotaCommand(), c.routeCommand(),
		c.verifyCommand(), c.undersellCommand(), c.traceCommand(), c.orderCommand(), c.lotteryCommand(), c.reconcileCommand(), c.opCommand(), c.recoverCommand(), c.approvalCommand(), c.tokenCommand(), c.keyCommand(), c.auditCommand(), c.devCommand(),
	)
	return root
}

// negative is what the flag parser says of an argument such as -5.
var negative = regexp.MustCompile(`unknown shorthand flag: '[0-9]'`)

// mark notes for every command that its command line was understood.
func (c *cli) mark(cmd *cobra.Command) {
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			c.began = true
			return run(cmd, args)
		}
	}
	for _, sub := range cmd.Commands() {
		c.mark(sub)
	}
}

// fixed completes a flag from a list.
func fixed(cmd *cobra.Command, flag string, words ...string) {
	// The flag exists: it was defined a line above.
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// group makes a command that only has others.
func group(use, short, example string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Example: example,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage("unknown command %q for %q", args[0], cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(commands...)
	return cmd
}

// takes demands these arguments, each named in the error when it is missing; the last one may be
// "[X]" for an optional one.
func takes(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > len(names) {
			return usage("%s: unexpected argument %q", cmd.CommandPath(), args[len(names)])
		}
		for _, missing := range names[len(args):] {
			if !strings.HasPrefix(missing, "[") {
				return usage("%s: needs %s", cmd.CommandPath(), strings.Join(names, " "))
			}
		}
		return nil
	}
}

// show writes the answer.
func (c *cli) show(v render.View) error { return render.Write(c.Out, c.format, v) }
