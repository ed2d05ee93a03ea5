package ctl

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/cellquota/cellquota/controlplane/ctl/demo"
)

func (c *cli) devDemo() *cobra.Command {
	return &cobra.Command{
		Use: "demo", Short: "Play the main job on real parts and prove its end", Args: takes(),
		Long: "Starts a local platform (or takes the one of --endpoints-file or --context), sells with one top-up by\n" +
			"hand, kills a cell in the middle, fences and reclaims it, restores it, closes, drains, and judges\n" +
			"every invariant. Exit 7 when one is broken.\n\n" +
			"DEMO_USERS, DEMO_STOCK, DEMO_CELLS change it; DEMO_REPORT names a file for the report as JSON;\n" +
			"DEMO_KEEP=1 leaves the platform running.",
		Example: "  cellctl dev demo\n  DEMO_USERS=5000 DEMO_REPORT=report.json cellctl dev demo\n  DEMO_KEEP=1 cellctl dev demo",
		RunE: func(cmd *cobra.Command, _ []string) error {
			settings, err := demo.FromEnvironment(c.Env)
			if err != nil {
				return err
			}
			s := demo.Setup{Settings: settings, Self: c.Self, Clock: c.Clock, Out: c.Err, Terminal: c.Terminal}
			if c.endpoints != "" || c.context != "" {
				t, err := c.find()
				if err != nil {
					return err
				}
				s.Target = &t
			}
			report, err := demo.Run(cmd.Context(), s)
			if report != nil && len(report.Invariants) > 0 {
				err = errors.Join(c.show(report.View()), err)
			}
			return err
		},
	}
}
