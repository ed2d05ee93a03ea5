package ctl

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cellquota/cellquota/controlplane/client"
	"github.com/cellquota/cellquota/controlplane/ctl/render"
	"github.com/cellquota/cellquota/controlplane/ctl/target"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

func (c *cli) tokenCommand() *cobra.Command {
	return group("token", "Mint, list and revoke operators' tokens",
		"  cellctl token create --name ann --for sre --ttl 12h --secret-file ann.token\n  cellctl token revoke k3v2m5qayx7n4c6d --reason 'laptop lost'",
		c.tokenCreate(), c.tokenList(), c.tokenRevoke())
}

func (c *cli) tokenCreate() *cobra.Command {
	var m mutation
	var name, role, file string
	var regions []string
	var ttl time.Duration
	cmd := &cobra.Command{
		Use: "create --name NAME --for ROLE", Short: "Mint a token; its secret is shown once and kept nowhere", Args: takes(),
		Long:    "The secret is printed, or written to --secret-file, which must not exist and only you can read. A\nrepeat under the same --operation-id is refused: nobody can read the secret a second time.",
		Example: "  cellctl token create --name ann --for sre --ttl 12h --reason 'on call'\n  cellctl token create --name bob --for region-operator --region east --secret-file bob.token",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := m.begin(c); err != nil {
				return err
			}
			return c.speak(cmd.Context(), target.SRE, func(ctx context.Context, cp *client.Client) error {
				var into *os.File
				if file != "" && !m.dryRun {
					var err error
					if into, err = os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
						return usage("--secret-file: %v", err)
					}
					defer func() { _ = into.Close() }()
				}
				out, err := call(ctx, c, cp.Access.CreateToken, &pb.CreateTokenRequest{
					Name: name, Role: role, Regions: regions, TtlSeconds: int64(ttl / time.Second),
					OperationId: m.operationID, ValidateOnly: m.dryRun, Reason: m.why(cmd),
				})
				if err != nil {
					if into != nil {
						_ = os.Remove(file) // blank: nothing was minted that we know of
					}
					return fmt.Errorf("create token for %s: %w", name, err)
				}
				return c.showToken(out, into)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&name, "name", "", "who the token speaks for; the actor of audit records")
	f.StringVar(&role, "for", "", "its role: "+strings.Join(target.Roles, ", "))
	f.StringSliceVar(&regions, "region", nil, "a region of a region-operator; may be repeated")
	f.DurationVar(&ttl, "ttl", 0, "how long it lives, 1m to 8784h (default: 30 days)")
	f.StringVar(&file, "secret-file", "", "write the secret there instead of printing it")
	required(cmd, "name")
	required(cmd, "for")
	fixed(cmd, "for", target.Roles...)
	m.flags(cmd)
	m.reasonFlag(cmd)
	return cmd
}

// showToken prints the secret, or writes it into a file and prints it nowhere.
func (c *cli) showToken(out *pb.CreateTokenResponse, into *os.File) error {
	v := render.View{Message: out, Tables: []render.Table{tokenTable(out.GetToken())}}
	switch {
	case into != nil:
		if _, err := fmt.Fprintln(into, out.GetSecret()); err != nil {
			_ = c.show(v) // the only copy: better shown than lost
			return fmt.Errorf("write the secret: %w", err)
		}
		out.Secret = ""
	case out.GetSecret() != "":
		v.Lines = append(v.Lines, "secret "+out.GetSecret())
	}
	return c.show(v)
}

func (c *cli) tokenList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List tokens without their secrets", Args: takes(),
		Example: "  cellctl token list\n  cellctl token list -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.speak(cmd.Context(), target.SRE, func(ctx context.Context, cp *client.Client) error {
				all := &pb.ListTokensResponse{}
				for {
					page, err := call(ctx, c, cp.Access.ListTokens, &pb.ListTokensRequest{PageSize: 1000, PageToken: all.GetNextPageToken()})
					if err != nil {
						return fmt.Errorf("list tokens: %w", err)
					}
					all.Tokens, all.NextPageToken = append(all.Tokens, page.GetTokens()...), page.GetNextPageToken()
					if all.GetNextPageToken() == "" {
						return c.show(render.View{Message: all, Tables: []render.Table{tokenTable(all.GetTokens()...)}})
					}
				}
			})
		},
	}
}

func (c *cli) tokenRevoke() *cobra.Command {
	var m mutation
	cmd := &cobra.Command{
		Use: "revoke TOKEN", Short: "End a token now; a repeat changes nothing", Args: takes("TOKEN"),
		Long:    "TOKEN is the id, the part between the first and the second underscore of the token's text. Every\nreplica refuses it as soon as it has heard of it, within a second.",
		Example: "  cellctl token revoke k3v2m5qayx7n4c6d --reason 'laptop lost'\n  cellctl token revoke k3v2m5qayx7n4c6d --dry-run",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := m.begin(c); err != nil {
				return err
			}
			if !m.dryRun {
				if err := c.confirm(fmt.Sprintf("End token %s?", args[0])); err != nil {
					return err
				}
			}
			return c.speak(cmd.Context(), target.SRE, func(ctx context.Context, cp *client.Client) error {
				out, err := call(ctx, c, cp.Access.RevokeToken, &pb.RevokeTokenRequest{TokenId: args[0], OperationId: m.operationID, ValidateOnly: m.dryRun, Reason: m.why(cmd)})
				if err != nil {
					return fmt.Errorf("revoke token %s: %w", args[0], err)
				}
				return c.show(render.View{Message: out, Tables: []render.Table{tokenTable(out.GetToken())}})
			})
		},
	}
	m.flags(cmd)
	m.reasonFlag(cmd)
	return cmd
}

func tokenTable(tokens ...*pb.Token) render.Table {
	t := render.Table{Columns: render.Columns("TOKEN", "NAME", "ROLE", "REGIONS", "CREATED", "EXPIRES", "REVOKED", "+CREATED BY")}
	for _, x := range tokens {
		t.Rows = append(t.Rows, []string{
			x.GetTokenId(), x.GetName(), x.GetRole(), strings.Join(x.GetRegions(), ","), render.Instant(x.GetCreatedAt()),
			render.Instant(x.GetExpiresAt()), render.Instant(x.GetRevokedAt()), x.GetCreatedBy(),
		})
	}
	return t
}
