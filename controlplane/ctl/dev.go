package ctl

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cellquota/cellquota/controlplane/ctl/render"
	"github.com/cellquota/cellquota/controlplane/ctl/target"
	"github.com/cellquota/cellquota/deploy/local/platform"
	"github.com/cellquota/cellquota/edge/client"
	"github.com/cellquota/cellquota/internal/ids"
)

func (c *cli) devCommand() *cobra.Command {
	return group("dev", "Drive a local platform as its customers and its accidents would",
		"  cellctl dev token --user alice\n  cellctl dev load --campaign demo --users 1000 --rate 200\n  cellctl dev kill cell-2",
		c.devToken(), c.devPay(), c.devLoad(), c.devDemo(), c.devKill(), c.devStart())
}

// tokenFlags of `dev token`.
type tokenFlags struct {
	user, region, device, risk string
	since                      time.Duration
	ttl                        time.Duration
	claims                     map[string]string
}

func (c *cli) devToken() *cobra.Command {
	var t tokenFlags
	cmd := &cobra.Command{
		Use: "token --user USER", Short: "Print an identity token that a local edge accepts", Args: takes(),
		Example: "  cellctl dev token --user alice\n" +
			"  cellctl dev token --user alice --home-region east --claim account_status=active\n" +
			"  curl -H \"Authorization: Bearer $(cellctl dev token --user alice)\" …",
		RunE: func(*cobra.Command, []string) error {
			token, expires, err := c.mintToken(t)
			if err != nil {
				return err
			}
			value := struct {
				Token     string `json:"token"`
				User      string `json:"user_id"`
				ExpiresAt string `json:"expires_at"`
			}{token, t.user, render.InstantOf(expires)}
			v := render.View{Value: value, Tables: []render.Table{{Columns: render.Columns("TOKEN", "USER", "EXPIRES"), Rows: [][]string{{token, t.user, value.ExpiresAt}}}}}
			if c.format == render.FormatTable {
				v = render.View{Lines: []string{token}} // what a shell wants
			}
			return c.show(v)
		},
	}
	f := cmd.Flags()
	f.StringVar(&t.user, "user", "", "user id (sub)")
	f.StringVar(&t.region, "home-region", "", "home_region; sets home_region_since too")
	f.DurationVar(&t.since, "home-since", 24*time.Hour, "home_region_since lies this long ago")
	f.StringVar(&t.device, "device", "", "device_id")
	f.StringVar(&t.risk, "risk-tier", "", "risk_tier")
	f.DurationVar(&t.ttl, "ttl", time.Hour, "life of the token")
	f.StringToStringVar(&t.claims, "claim", nil, "further claims, name=text; may be repeated")
	required(cmd, "user")
	return cmd
}

func (c *cli) mintToken(f tokenFlags) (string, time.Time, error) {
	if _, err := ids.ParseUserID(f.user); err != nil {
		return "", time.Time{}, usage("--user: %v", err)
	}
	t, err := c.find()
	if err != nil {
		return "", time.Time{}, err
	}
	secret, err := t.IdentitySecret()
	if err != nil {
		return "", time.Time{}, err
	}
	now := c.Clock.Now()
	claims := client.TokenClaims{
		Issuer: platform.TokenIssuer, Audience: platform.TokenAudience, User: f.user, Expires: now.Add(f.ttl),
		DeviceID: f.device, RiskTier: f.risk, More: map[string]any{},
	}
	if f.region != "" {
		claims.HomeRegion, claims.HomeRegionSince = f.region, now.Add(-f.since)
	}
	for name, text := range f.claims {
		claims.More[name] = text
	}
	token, err := client.SignToken(secret, claims)
	return token, claims.Expires, err
}

func (c *cli) devKill() *cobra.Command {
	var signal string
	cmd := &cobra.Command{
		Use: "kill PROCESS", Short: "Kill processes of a local platform; they stay down until dev start", Args: takes("PROCESS"),
		Long: "PROCESS is etcd, kafka, controlplane-N, edge-N, CELL/pN, CELL/redis, CELL/postgres, or a cell id for\n" +
			"all cellquotad processes of that cell.",
		Example: "  cellctl dev kill cell-2\n  cellctl dev kill cell-1/redis --signal TERM\n  cellctl dev kill controlplane-1 --signal STOP",
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := platform.ParseSignal(signal)
			if err != nil {
				return err
			}
			return c.supervise(cmd.Context(), func(ctx context.Context, p *platform.Client) ([]platform.Process, error) {
				return p.Kill(ctx, args[0], s)
			})
		},
	}
	cmd.Flags().StringVar(&signal, "signal", string(platform.KILL), "KILL, TERM, STOP or CONT")
	fixed(cmd, "signal", "KILL", "TERM", "STOP", "CONT")
	return cmd
}

func (c *cli) devStart() *cobra.Command {
	return &cobra.Command{
		Use: "start PROCESS", Short: "Start processes of a local platform that are down", Args: takes("PROCESS"),
		Example: "  cellctl dev start cell-2\n  cellctl dev start cell-1/redis",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.supervise(cmd.Context(), func(ctx context.Context, p *platform.Client) ([]platform.Process, error) {
				return p.Start(ctx, args[0])
			})
		},
	}
}

// supervise asks the local platform's supervisor and shows the processes concerned.
func (c *cli) supervise(ctx context.Context, do func(context.Context, *platform.Client) ([]platform.Process, error)) error {
	t, err := c.find()
	if err != nil {
		return err
	}
	if t.DataDir == "" {
		return fmt.Errorf("%s: %w", t.Name, target.ErrNotLocal)
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	list, err := do(ctx, platform.NewClient(t.DataDir))
	if err != nil {
		return err
	}
	table := render.Table{Columns: render.Columns("PROCESS", "STATE", "#PID", "#STARTS", "EXIT", "+LOG")}
	for _, p := range list {
		table.Rows = append(table.Rows, []string{p.Name, p.State, number(int64(p.PID)), number(int64(p.Starts)), p.Exit, p.Log})
	}
	value := struct {
		Processes []platform.Process `json:"processes"`
	}{slices.Clip(list)}
	return c.show(render.View{Value: value, Tables: []render.Table{table}})
}

// problemText is an edge's refusal in words.
func problemText(a client.Answer) string {
	text := fmt.Sprintf("the edge answers %d %s", a.Status, a.Code)
	if a.Detail != "" {
		text += ": " + strings.TrimSpace(a.Detail)
	}
	return text
}
