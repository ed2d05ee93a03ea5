package ctl

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cellquota/cellquota/internal/ids"
)

// mutation are the flags of a command that changes something.
type mutation struct {
	dryRun      bool
	reason      string
	operationID string
	version     int64
}

func (m *mutation) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&m.dryRun, "dry-run", false, "check only, change nothing")
	f.StringVar(&m.operationID, "operation-id", "", "id of the mutation; a repeat under the same id is the same mutation (default: a new one)")
}

func (m *mutation) reasonFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&m.reason, "reason", "", "why; kept in the audit")
}

func (m *mutation) versionFlag(cmd *cobra.Command) {
	cmd.Flags().Int64Var(&m.version, "expected-version", 0, "refuse when the record has another version by now; 0: any")
}

// begin mints the id and prints it before the first try: whoever loses the answer can repeat.
func (m *mutation) begin(c *cli) error {
	if m.operationID == "" {
		m.operationID = ids.NewOperationID()
	} else if _, err := ids.ParseOperationID("operation_id", m.operationID); err != nil {
		return usage("--operation-id: %v", err)
	}
	if !m.dryRun {
		fmt.Fprintf(c.Err, "operation_id %s\n", m.operationID)
	}
	return nil
}

// why is the reason that the audit keeps; without one it says that there was none.
func (m *mutation) why(cmd *cobra.Command) string {
	if m.reason != "" {
		return m.reason
	}
	return cmd.CommandPath() + ", no reason given"
}
