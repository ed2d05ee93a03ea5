package ctl

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cellquota/cellquota/controlplane/client"
	"github.com/cellquota/cellquota/controlplane/ctl/render"
	"github.com/cellquota/cellquota/controlplane/ctl/target"
	"github.com/cellquota/cellquota/controlplane/ctl/traffic"
	edge "github.com/cellquota/cellquota/edge/client"
	"github.com/cellquota/cellquota/edge/load"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/signed"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// payFlags of `dev pay`.
type payFlags struct{ user, payment, status string }

func (c *cli) devPay() *cobra.Command {
	var p payFlags
	cmd := &cobra.Command{
		Use: "pay ORDER", Short: "Pay an order as its customer and its payment channel would", Args: takes("ORDER"),
		Long:    "Starts an attempt with the customer's token, then sends the channel's signed message. Without --user\nthe customer is looked up by trace.",
		Example: "  cellctl dev pay cell-1.o…\n  cellctl dev pay cell-1.o… --user alice --status FAILED",
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), c.timeout)
			defer cancel()
			return c.pay(ctx, args[0], p)
		},
	}
	f := cmd.Flags()
	f.StringVar(&p.user, "user", "", "the customer")
	f.StringVar(&p.payment, "payment-id", "", "id of the attempt; a repeat under the same id is the same attempt (default: a new one)")
	f.StringVar(&p.status, "status", "SUCCEEDED", "what the channel says: SUCCEEDED, FAILED or PENDING")
	fixed(cmd, "status", "SUCCEEDED", "FAILED", "PENDING")
	return cmd
}

func (c *cli) pay(ctx context.Context, order string, p payFlags) error {
	if _, err := ids.ParseOrder(order); err != nil {
		return usage("ORDER: %v", err)
	}
	t, err := c.find()
	if err != nil {
		return err
	}
	o, err := traffic.Options(t, c.Clock, "", 1)
	if err != nil {
		return err
	}
	defer o.Client.Close()
	if p.user == "" {
		if p.user, err = c.customerOf(ctx, order); err != nil {
			return err
		}
	}
	if p.payment == "" {
		p.payment = ids.NewOperationID()
	}
	token, _, err := c.mintToken(tokenFlags{user: p.user, ttl: tokenLife})
	if err != nil {
		return err
	}
	result, err := c.payThrough(ctx, o, token, order, p)
	if err != nil {
		return err
	}
	return c.show(render.View{Value: result, Tables: []render.Table{{
		Columns: render.Columns("ORDER", "STATE", "PAYMENT", "PAYMENT STATE"),
		Rows:    [][]string{{result.OrderID, result.OrderState, p.payment, result.PaymentState}},
	}}})
}

// payThrough starts the attempt and sends the channel's message; each is made again under its own id
// while the answer asks for it and ctx lasts.
func (c *cli) payThrough(ctx context.Context, o load.Options, token, order string, p payFlags) (edge.CallbackResult, error) {
	var due edge.Payment
	err := c.persist(ctx, func() (a edge.Answer, err error) {
		due, a, err = o.Client.StartPayment(ctx, token, order, p.payment)
		return a, err
	})
	if err != nil {
		return edge.CallbackResult{}, fmt.Errorf("start payment of %s: %w", order, err)
	}
	message := edge.Callback{PaymentID: p.payment, OrderID: order, Amount: due.Amount, Currency: due.Currency, Status: p.status}
	var result edge.CallbackResult
	err = c.persist(ctx, func() (a edge.Answer, err error) {
		result, a, err = o.Client.SendCallback(ctx, message, func(body []byte) (string, error) {
			return signed.SignPayment(c.Clock.Now(), body, o.Payment, o.PaymentKID)
		})
		return a, err
	})
	if err != nil {
		return result, fmt.Errorf("callback for %s: %w", order, err)
	}
	return result, nil
}

// persist repeats a call while its answer says so; a refusal is an error of the kind of its status.
func (c *cli) persist(ctx context.Context, do func() (edge.Answer, error)) error {
	for attempt := 0; ; attempt++ {
		a, err := do()
		if err == nil && a.OK() {
			return nil
		}
		step := edge.Next(a, err, attempt)
		if !step.Again {
			return fmt.Errorf("%w: %s", kindOf(a.Status), problemText(a))
		}
		if c.Clock.Sleep(ctx, max(step.After, callPause)) != nil {
			if err == nil {
				err = errors.New(problemText(a))
			}
			return fmt.Errorf("%w: %w", rpcstatus.ErrDeadline, err)
		}
	}
}

// kindOf is the sentinel of an HTTP status, for the exit code.
func kindOf(status int) error {
	switch status {
	case 400:
		return rpcstatus.ErrInvalidArgument
	case 401:
		return rpcstatus.ErrUnauthenticated
	case 403:
		return rpcstatus.ErrPermissionDenied
	case 404:
		return rpcstatus.ErrNotFound
	case 409, 410:
		return rpcstatus.ErrFailedPrecondition
	case 429, 503:
		return rpcstatus.ErrUnavailable
	default:
		return rpcstatus.ErrInternal
	}
}

// customerOf finds out whose order it is.
func (c *cli) customerOf(ctx context.Context, order string) (string, error) {
	user := ""
	err := c.speak(ctx, target.SRE, func(ctx context.Context, cp *client.Client) error {
		out, err := call(ctx, c, cp.Reports.Trace, &pb.TraceRequest{Kind: "order", Id: order})
		if err != nil {
			return fmt.Errorf("whose order %s is: %w", order, err)
		}
		for _, e := range out.GetEvents() {
			if u := e.GetFields()["user_id"]; u != "" {
				user = u
				return nil
			}
		}
		return fmt.Errorf("order %s: %w", order, rpcstatus.ErrNotFound)
	})
	return user, err
}
