package ctl

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cellquota/cellquota/controlplane/client"
	"github.com/cellquota/cellquota/controlplane/ctl/render"
	"github.com/cellquota/cellquota/controlplane/ctl/target"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// keyUses are what keys are for.
var keyUses = []string{"permit", "receipt", "payment"}

func (c *cli) keyCommand() *cobra.Command {
	return group("key", "List, rotate and revoke signing keys",
		"  cellctl key list\n  cellctl key rotate 2026-12 --use permit --reason 'monthly'\n  cellctl key revoke 2026-11 --use permit --reason 'laptop lost'",
		c.keyList(), c.keyRotate(), c.keyRevoke())
}

func (c *cli) keyList() *cobra.Command {
	var use string
	cmd := &cobra.Command{
		Use: "list", Short: "List keys, their states and who lacks their bytes", Args: takes(),
		Long:    "A key is a file keys_dir/USE/KID on edges and cells. UNMANAGED: no key of the use was rotated yet;\nall of them verify and the id signs that was the greatest when the process started.",
		Example: "  cellctl key list\n  cellctl key list --use permit -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := keyUse(use, true); err != nil {
				return err
			}
			return c.speak(cmd.Context(), target.Viewer, func(ctx context.Context, cp *client.Client) error {
				out, err := call(ctx, c, cp.Access.ListKeys, &pb.ListKeysRequest{})
				if err != nil {
					return fmt.Errorf("list keys: %w", err)
				}
				var keys []*pb.SigningKey
				for _, k := range out.GetKeys() {
					if use == "" || k.GetInfo().GetUse() == use {
						keys = append(keys, k)
					}
				}
				out.Keys = keys
				return c.show(render.View{Message: out, Tables: []render.Table{keyTable(keys...)}})
			})
		},
	}
	keyUseFlag(cmd, &use)
	return cmd
}

func (c *cli) keyRotate() *cobra.Command {
	var m mutation
	var use, from string
	cmd := &cobra.Command{
		Use: "rotate KID --use USE", Short: "Make a key ACTIVE once every live process has it", Args: takes("KID"),
		Long:    "Put the file keys_dir/USE/KID on every edge and cell first. The key that was ACTIVE becomes RETIRING:\nit verifies what it signed and signs nothing more. With --not-before it signs until then.",
		Example: "  cellctl key rotate 2026-12 --use permit --dry-run\n  cellctl key rotate 2026-12 --use permit --reason 'monthly'\n  cellctl key rotate 2026-12 --use receipt --not-before 2026-12-01T00:00:00Z",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := keyUse(use, false); err != nil {
				return err
			}
			var begins *timestamppb.Timestamp
			if from != "" {
				at, err := time.Parse(time.RFC3339, from)
				if err != nil {
					return usage("--not-before: %q is no time such as 2026-12-01T00:00:00Z", from)
				}
				begins = timestamppb.New(at)
			}
			if err := m.begin(c); err != nil {
				return err
			}
			return c.speak(cmd.Context(), target.SRE, func(ctx context.Context, cp *client.Client) error {
				out, err := call(ctx, c, cp.Access.RotateKey, &pb.RotateKeyRequest{
					Use: use, Kid: args[0], NotBefore: begins, OperationId: m.operationID, ValidateOnly: m.dryRun, Reason: m.why(cmd),
				})
				if err != nil {
					return fmt.Errorf("rotate key %s/%s: %w", use, args[0], err)
				}
				return c.show(render.View{Message: out, Tables: []render.Table{keyTable(out.GetKey())}})
			})
		},
	}
	keyUseFlag(cmd, &use)
	required(cmd, "use")
	cmd.Flags().StringVar(&from, "not-before", "", "when it begins to sign, RFC 3339 (default: now)")
	m.flags(cmd)
	m.reasonFlag(cmd)
	return cmd
}

func (c *cli) keyRevoke() *cobra.Command {
	var m mutation
	var use string
	cmd := &cobra.Command{
		Use: "revoke KID --use USE", Short: "Make a key verify nothing, for ever; a repeat changes nothing", Args: takes("KID"),
		Long:    "What the key signed is refused from when a process hears of it, within a second. Receipts and permits\nthat customers hold under it are lost. The ACTIVE key is refused: rotate first.",
		Example: "  cellctl key revoke 2026-11 --use permit --reason 'laptop lost'\n  cellctl key revoke 2026-11 --use permit --dry-run",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := keyUse(use, false); err != nil {
				return err
			}
			if err := m.begin(c); err != nil {
				return err
			}
			if !m.dryRun {
				if err := c.confirm(fmt.Sprintf("Revoke key %s/%s for ever?", use, args[0])); err != nil {
					return err
				}
			}
			return c.speak(cmd.Context(), target.SRE, func(ctx context.Context, cp *client.Client) error {
				out, err := call(ctx, c, cp.Access.RevokeKey, &pb.RevokeKeyRequest{Use: use, Kid: args[0], OperationId: m.operationID, ValidateOnly: m.dryRun, Reason: m.why(cmd)})
				if err != nil {
					return fmt.Errorf("revoke key %s/%s: %w", use, args[0], err)
				}
				return c.show(render.View{Message: out, Tables: []render.Table{keyTable(out.GetKey())}})
			})
		},
	}
	keyUseFlag(cmd, &use)
	required(cmd, "use")
	m.flags(cmd)
	m.reasonFlag(cmd)
	return cmd
}

func keyUseFlag(cmd *cobra.Command, use *string) {
	cmd.Flags().StringVar(use, "use", "", "what the key is for: "+strings.Join(keyUses, ", "))
	fixed(cmd, "use", keyUses...)
}

func keyUse(use string, optional bool) error {
	for _, known := range keyUses {
		if use == known || optional && use == "" {
			return nil
		}
	}
	return usage("--use: must be one of %s", strings.Join(keyUses, ", "))
}

func keyTable(keys ...*pb.SigningKey) render.Table {
	t := render.Table{Columns: render.Columns("USE", "KID", "STATE", "NOT BEFORE", "MISSING AT")}
	for _, k := range keys {
		begins := ""
		if ms := k.GetInfo().GetNotBeforeMs(); ms != 0 {
			begins = time.UnixMilli(ms).UTC().Format(time.RFC3339)
		}
		missing := strings.Join(k.GetMissingAt()[:min(len(k.GetMissingAt()), 3)], ",")
		if n := len(k.GetMissingAt()); n > 3 {
			missing += fmt.Sprintf(" and %d more", n-3)
		}
		t.Rows = append(t.Rows, []string{k.GetInfo().GetUse(), k.GetInfo().GetKid(), k.GetInfo().GetState(), begins, missing})
	}
	return t
}
