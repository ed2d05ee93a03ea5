package ctl

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cellquota/cellquota/controlplane/client"
	"github.com/cellquota/cellquota/controlplane/ctl/render"
	"github.com/cellquota/cellquota/controlplane/ctl/target"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

func (c *cli) orderCommand() *cobra.Command {
	return group("order", "Show an order, and give its money back", "  cellctl order get cell-1.o…\n  cellctl order refund cell-1.o… --reason 'complaint 4711'",
		c.orderGet(), c.orderRefund())
}

func (c *cli) orderGet() *cobra.Command {
	return &cobra.Command{
		Use: "get ORDER", Short: "Show one order with its payments and refunds", Args: takes("ORDER"),
		Example: "  cellctl order get cell-1.o…\n  cellctl order get cell-1.o… -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.speak(cmd.Context(), target.Viewer, func(ctx context.Context, cp *client.Client) error {
				out, err := call(ctx, c, cp.Reports.GetOrder, &pb.ReportServiceGetOrderRequest{OrderId: args[0]})
				if err != nil {
					return fmt.Errorf("order %s: %w", args[0], err)
				}
				return c.show(orderView(out))
			})
		},
	}
}

func orderView(out *pb.ReportServiceGetOrderResponse) render.View {
	v := render.View{Message: out, Tables: []render.Table{orderTable(out.GetOrder())}}
	if len(out.GetPayments()) > 0 {
		t := render.Table{Columns: render.Columns("PAYMENT", "AMOUNT", "STATE", "REFUND", "UPDATED")}
		for _, p := range out.GetPayments() {
			t.Rows = append(t.Rows, []string{p.GetPaymentId(), sum(p.GetAmount()), render.Word(p.GetState()), p.GetRefundId(), instant(p.GetUpdatedAtMs())})
		}
		v.Tables = append(v.Tables, t)
	}
	if len(out.GetRefunds()) > 0 {
		t := render.Table{Columns: render.Columns("REFUND", "PAYMENT", "AMOUNT", "CAUSE", "STATE", "RESTOCKED", "ASKS", "ANSWER", "BY")}
		for _, r := range out.GetRefunds() {
			t.Rows = append(t.Rows, []string{
				r.GetRefundId(), r.GetPaymentId(), sum(r.GetAmount()), r.GetCause(), r.GetState(), strconv.FormatBool(r.GetRestocked()),
				strconv.Itoa(int(r.GetAsks())), r.GetAnswer(), r.GetActor(),
			})
		}
		v.Tables = append(v.Tables, t)
	}
	return v
}

func orderTable(o *pb.OrderView) render.Table {
	return render.Table{
		Columns: render.Columns("ORDER", "USER", "CAMPAIGN", "SKU", "UNITS", "TOTAL", "STATE", "REASON", "CREATED", "EXPIRES"),
		Rows: [][]string{{
			o.GetOrderId(), o.GetUserId(), o.GetCampaignId(), o.GetSkuId(), strconv.Itoa(int(o.GetQuantity())), sum(o.GetTotal()), render.Word(o.GetState()),
			reasonWord(o.GetReason()), instant(o.GetCreatedAtMs()), instant(o.GetExpiresAtMs()),
		}},
	}
}

func reasonWord(r pb.Reason) string {
	if r == pb.Reason_REASON_UNSPECIFIED {
		return ""
	}
	return render.Word(r)
}

func sum(m *pb.Money) string { return m.GetAmount() + " " + m.GetCurrency() }

func instant(ms int64) string {
	if ms == 0 {
		return ""
	}
	return render.Instant(timestamppb.New(time.UnixMilli(ms)))
}

func (c *cli) orderRefund() *cobra.Command {
	var m mutation
	cmd := &cobra.Command{
		Use: "refund ORDER", Short: "Give a paid order's money back, in full", Args: takes("ORDER"),
		Long: "Wants the refund under --operation-id, which is its refund_id: a repeat is the same refund. The\n" +
			"order's cell asks the payment channel until it says that the money went back; cellctl order get\n" +
			"shows how far it is. The order stays PAID; its units return to sale with refund_rule RESTOCK only.",
		Example: "  cellctl order refund cell-1.o… --dry-run\n  cellctl order refund cell-1.o… --reason 'complaint 4711'",
		RunE: func(cmd *cobra.Command, args []string) error {
			if !m.dryRun {
				if err := c.confirm(fmt.Sprintf("Give the money of order %s back?", args[0])); err != nil {
					return err
				}
			}
			if err := m.begin(c); err != nil {
				return err
			}
			return c.speak(cmd.Context(), target.SRE, func(ctx context.Context, cp *client.Client) error {
				in := &pb.RefundOrderRequest{OrderId: args[0], RefundId: m.operationID, Reason: m.why(cmd), ValidateOnly: m.dryRun}
				out, err := call(ctx, c, cp.Orders.RefundOrder, in)
				if err != nil {
					return fmt.Errorf("refund %s: %w", args[0], err)
				}
				t := render.Table{
					Columns: render.Columns("ORDER", "STATE", "PAYMENT", "AMOUNT", "REFUND", "PAYMENT_STATE"),
					Rows: [][]string{{
						out.GetOrder().GetOrderId(), render.Word(out.GetOrder().GetState()), out.GetPaymentId(), sum(out.GetOrder().GetTotal()), out.GetRefundId(),
						render.Word(out.GetPaymentState()),
					}},
				}
				return c.show(render.View{Message: out, Tables: []render.Table{t}})
			})
		},
	}
	m.flags(cmd)
	m.reasonFlag(cmd)
	return cmd
}
