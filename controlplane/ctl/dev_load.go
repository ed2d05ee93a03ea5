package ctl

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/cellquota/cellquota/controlplane/client"
	"github.com/cellquota/cellquota/controlplane/ctl/render"
	"github.com/cellquota/cellquota/controlplane/ctl/target"
	"github.com/cellquota/cellquota/controlplane/ctl/traffic"
	"github.com/cellquota/cellquota/edge/load"
	"github.com/cellquota/cellquota/edge/load/history"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

const tokenLife = time.Hour

// loadFlags of `dev load`.
type loadFlags struct {
	campaign, profile, history, scope string
	scale                             float64
	duration                          time.Duration
	conns                             int
	regions                           []string
	json                              bool
	plan                              load.Plan
}

func (c *cli) devLoad() *cobra.Command {
	var l loadFlags
	cmd := &cobra.Command{
		Use: "load --campaign CAMPAIGN", Short: "Send simulated customers, record every operation", Args: takes(),
		Long: "Open loop: customers come when the plan says, whatever the platform answers. A profile gives one of\n" +
			"the sources' scenarios (s0, s3, s4) divided by --scale; other flags change it. --history records\n" +
			"every operation as JSON lines for `cellctl verify --history`.",
		Example: "  cellctl dev load --campaign demo --users 10000 --rate 2000 --pay 0.9 --history load.jsonl\n" +
			"  cellctl dev load --campaign demo --profile s3 --scale 20 --history load.jsonl\n" +
			"  cellctl verify --campaign demo --history load.jsonl",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if l.json {
				c.format = render.FormatJSON
			}
			plan, err := l.whole(cmd)
			if err != nil {
				return err
			}
			return c.load(cmd.Context(), l, plan)
		},
	}
	l.flags(cmd)
	required(cmd, "campaign")
	return cmd
}

func (l *loadFlags) flags(cmd *cobra.Command) {
	f, p := cmd.Flags(), &l.plan
	f.StringVar(&l.campaign, "campaign", "", "campaign to buy from")
	f.StringVar(&l.profile, "profile", "", "s0, s3 or s4")
	f.Float64Var(&l.scale, "scale", 1, "divides the profile's customers and rate")
	f.StringVar(&l.history, "history", "", "record every operation in this file")
	f.StringVar(&l.scope, "scope", "", "purchase scope, sku or campaign (default: asked of the control plane)")
	f.IntVar(&l.conns, "conns", 256, "connections to each edge")
	f.StringSliceVar(&l.regions, "home-region", nil, "home regions, given to the customers in turn")
	f.BoolVar(&l.json, "json", false, "same as -o json")
	f.IntVar(&p.Users, "users", 1000, "customers")
	f.Float64Var(&p.Rate, "rate", 0, "customers per second; 0: as fast as --max-active allows")
	f.DurationVar(&l.duration, "duration", 0, "with --rate and without --users: how long customers come")
	f.IntVar(&p.MaxActive, "max-active", 10_000, "customers under way at one moment")
	f.StringArrayVar(&p.SKUs, "sku", nil, "SKU to ask for; may be repeated (default: all of the campaign)")
	f.Float64Var(&p.Skew, "skew", 0.8, "share of the customers who want the first SKU, when there are several")
	f.IntVar(&p.Quantity, "quantity", 1, "units of an order")
	f.Uint64Var(&p.Seed, "seed", 0, "decides the whole plan (default: a new one; it is part of the result)")
	f.StringVar(&p.Prefix, "prefix", "", "of user ids (default: derived from the seed)")
	f.DurationVar(&p.Patience, "patience", 2*time.Minute, "longest visit of a customer, payment included")
	f.DurationVar(&p.GiveUp, "give-up", 0, "a customer not accepted within this time tries no more; 0: never")
	f.Float64Var(&p.Mix.Repeat, "repeat", 0, "share that sends the same request again")
	f.Float64Var(&p.Mix.Clash, "clash", 0, "share that sends the same request id with another quantity")
	f.Float64Var(&p.Mix.Second, "second", 0, "share that tries for a second order")
	f.IntVar(&p.Mix.Press, "press", 0, "tries after sold out or busy")
	f.Float64Var(&p.Mix.Pay, "pay", 0.9, "share of the orders that are paid")
	f.Float64Var(&p.Mix.Cancel, "cancel", 0, "share of the orders that are cancelled; the rest expire")
	f.Float64Var(&p.Mix.PayTwice, "pay-twice", 0, "share of the payments whose channel says it twice")
	f.DurationVar(&p.Mix.PayDelay, "pay-delay", 0, "a payer waits up to this long")
	f.Float64Var(&p.Mix.Linger, "linger", 0, "share of those who walk away that looks until the order is closed")
	fixed(cmd, "profile", "s0", "s3", "s4")
	fixed(cmd, "scope", "sku", "campaign")
}

// whole is the plan: the profile, changed by the flags that were given.
func (l *loadFlags) whole(cmd *cobra.Command) (load.Plan, error) {
	plan, given := l.plan, cmd.Flags().Changed
	if l.profile != "" {
		base, err := load.Profile(l.profile, l.scale)
		if err != nil {
			return plan, usage("--%v", err)
		}
		plan = l.changed(base, given)
	}
	if l.duration > 0 && !given("users") {
		if plan.Rate <= 0 {
			return plan, usage("--duration needs --rate")
		}
		plan.Users = max(1, int(plan.Rate*l.duration.Seconds()))
	}
	switch l.scope {
	case "", "sku":
	case "campaign":
		plan.Scope = "*"
	default:
		return plan, usage("--scope %q: must be sku or campaign", l.scope)
	}
	if !given("seed") {
		plan.Seed = uint64(rand.Uint32()) // any JSON reader keeps it
	}
	if plan.Prefix == "" {
		plan.Prefix = fmt.Sprintf("u%x", plan.Seed)
	}
	probe := plan
	if len(probe.SKUs) == 0 {
		probe.SKUs = []string{"any"} // asked of the edge later
	}
	if err := probe.Check(); err != nil {
		return plan, usage("--%v", err)
	}
	return plan, nil
}

// changed takes from the flags what was given and from the base what was not.
func (l *loadFlags) changed(base load.Plan, given func(string) bool) load.Plan {
	p := l.plan
	keep(given("users"), &p.Users, base.Users)
	keep(given("rate"), &p.Rate, base.Rate)
	keep(given("quantity"), &p.Quantity, base.Quantity)
	keep(given("repeat"), &p.Mix.Repeat, base.Mix.Repeat)
	keep(given("clash"), &p.Mix.Clash, base.Mix.Clash)
	keep(given("second"), &p.Mix.Second, base.Mix.Second)
	keep(given("press"), &p.Mix.Press, base.Mix.Press)
	keep(given("pay"), &p.Mix.Pay, base.Mix.Pay)
	keep(given("cancel"), &p.Mix.Cancel, base.Mix.Cancel)
	keep(given("pay-twice"), &p.Mix.PayTwice, base.Mix.PayTwice)
	keep(given("pay-delay"), &p.Mix.PayDelay, base.Mix.PayDelay)
	keep(given("linger"), &p.Mix.Linger, base.Mix.Linger)
	return p
}

func keep[T any](given bool, field *T, base T) {
	if !given {
		*field = base
	}
}

// load runs the plan.
func (c *cli) load(ctx context.Context, l loadFlags, plan load.Plan) error {
	t, err := c.find()
	if err != nil {
		return err
	}
	o, err := traffic.Options(t, c.Clock, l.campaign, l.conns)
	if err != nil {
		return err
	}
	defer o.Client.Close()
	o.HomeRegions = l.regions
	if len(plan.SKUs) == 0 {
		if plan.SKUs, err = traffic.SKUs(ctx, o.Client, l.campaign); err != nil {
			return err
		}
	}
	if l.scope == "" {
		plan.Scope = c.scopeOf(ctx, l.campaign)
	}
	if l.history != "" {
		f, err := os.OpenFile(l.history, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
		if err != nil {
			return usage("--history: %v", err)
		}
		o.History = history.NewWriter(f)
	}
	result, err := c.drive(ctx, o, plan)
	if o.History != nil {
		if herr := o.History.Close(); herr != nil {
			err = errors.Join(herr, err)
		}
	}
	if shown := c.show(loadView(result)); shown != nil {
		return shown
	}
	return err
}

func (c *cli) drive(ctx context.Context, o load.Options, plan load.Plan) (load.Result, error) {
	run, err := load.New(o, plan)
	if err != nil {
		return load.Result{}, usage("%v", err)
	}
	_, stop := traffic.Watch(ctx, c.Clock, c.Err, c.Terminal, run, plan.Users)
	defer stop()
	return run.Do(ctx)
}

// scopeOf asks for the purchase scope; a control plane that does not answer stops no load: the SKU is
// what most campaigns count by.
func (c *cli) scopeOf(ctx context.Context, campaign string) string {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	scope := ""
	err := c.speak(ctx, target.Viewer, func(ctx context.Context, cp *client.Client) error {
		out, err := cp.Campaigns.GetCampaign(ctx, &pb.GetCampaignRequest{CampaignId: campaign})
		if err == nil && out.GetCampaign().GetSpec().GetPurchaseScope() == pb.PurchaseScope_PURCHASE_SCOPE_CAMPAIGN {
			scope = "*"
		}
		return err
	})
	if err != nil {
		fmt.Fprintf(c.Err, "purchase scope not known (%v): taken for SKU; --scope says otherwise\n", err)
	}
	return scope
}

func loadView(r load.Result) render.View {
	stages := render.Table{Title: "LATENCY IN MS", Columns: render.Columns("STAGE", "#COUNT", "#P50", "#P95", "#P99", "#P99.9", "#MAX")}
	for _, s := range load.Stages {
		if l, ok := r.Latencies[s]; ok {
			stages.Rows = append(stages.Rows, []string{string(s), number(l.Count), decimal(l.P50), decimal(l.P95), decimal(l.P99), decimal(l.P999), decimal(l.Max)})
		}
	}
	answers := render.Table{Title: "ANSWERS", Columns: render.Columns("ANSWER", "#COUNT")}
	for _, k := range r.Counts.Sorted() {
		answers.Rows = append(answers.Rows, []string{k, number(r.Counts[k])})
	}
	return render.View{
		Value: r,
		Lines: []string{
			traffic.Line(r.Snapshot, r.Plan.Users),
			fmt.Sprintf("took %s; last order %s after the first customer; at best %d orders/s; %d customers started late; seed %d",
				r.Elapsed.Round(time.Millisecond), r.OpenToLastOrder.Round(time.Millisecond), r.OrdersPerSecond, r.Late, r.Plan.Seed),
		},
		Tables: []render.Table{stages, answers},
	}
}
