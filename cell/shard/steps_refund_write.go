package shard

import (
	eventsv1 "github.com/cellquota/cellquota/proto/cellquota/events/v1"
	cellquotav1 "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// requestRefund notes a refund that the channel is to be asked for.
func (r *stepRun) requestRefund(o *held, row refundRow) {
	row.state = refundPending
	r.addRefund(o, row)
}

// addRefund notes a row to be written, and whose its id is from now on: another order's step of the
// same run is refused by it as it would be by a row.
func (r *stepRun) addRefund(o *held, row refundRow) {
	row.of = o
	r.refundOf[row.id] = o.ID
	r.out.refunds = append(r.out.refunds, row)
}

// usedElsewhere tells whether the id is that of another order's refund.
func (r *stepRun) usedElsewhere(id string, o *held) bool {
	of, used := r.refundOf[id]
	return used && of != o.ID
}

// refundArgs renders the arrays of step_refunds_write.
func (r *stepRun) refundArgs() []any {
	n := len(r.out.refunds)
	text := make([][]string, 9)
	part, restocked := make([]bool, n), make([]bool, n)
	for i := range r.out.refunds {
		f := &r.out.refunds[i]
		for c, v := range []string{
			f.id, string(f.of.ID), string(f.payment), f.amount.Amount(), f.amount.Currency, f.cause, f.ask.Actor, f.ask.Reason, f.state,
		} {
			text[c] = append(text[c], v)
		}
		f.restocked = r.restocks(f)
		part[i], restocked[i] = f.part, f.restocked
	}
	return []any{text[0], text[1], text[2], text[3], text[4], part, text[5], text[6], text[7], text[8], restocked}
}

func (r *stepRun) restocks(f *refundRow) bool {
	for _, x := range r.out.restocks {
		if x.refund == f.id && x.held == f.of {
			return true
		}
	}
	return false
}

// refundEvents tell others that a refund was asked for, or ended.
func (r *stepRun) refundEvents() []outRow {
	out := make([]outRow, 0, len(r.out.refunds))
	for i := range r.out.refunds {
		f := &r.out.refunds[i]
		if f.lowered {
			continue // its completion tells the sum
		}
		o := f.of
		amount := &cellquotav1.Money{Amount: f.amount.Amount(), Currency: f.amount.Currency}
		row := outRow{target: targetEvents, aggregate: "refund/" + f.id, campaign: o.Campaign, sku: o.SKU}
		if f.state == refundPending {
			row.eventType = "refund-requested"
			row.payload = &eventsv1.RefundRequested{OrderId: string(o.ID), PaymentId: string(f.payment), RefundId: f.id, Cause: f.cause, Amount: amount}
		} else {
			row.eventType = "refund-completed"
			row.payload = &eventsv1.RefundCompleted{
				OrderId: string(o.ID), PaymentId: string(f.payment), RefundId: f.id, Cause: f.cause, Amount: amount,
				Part: f.part, Restocked: r.restocks(f), AtMs: o.now.UnixMilli(),
			}
		}
		out = append(out, r.traced(o, row))
	}
	return out
}
