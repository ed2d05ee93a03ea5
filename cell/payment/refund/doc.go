// Package refund drives refunds to their end, whoever wanted them: an operator, a payment that came
// too late or twice, a cancelled campaign.
//
// # Promise
//
// A refund is wanted once: its row and its event are written in the transaction that decided it (by
// cell/shard, under the order's lock). From then on this loop asks the channel, under the refund's own
// id, until the channel says that the money went back, here or by a callback. An answer that is none
// is asked again after a pause that doubles up to Config.Pace.Longest, for ever: a refund is money of
// a customer, so it is never given up, only more and more visible (refunds_pending,
// refund_oldest_seconds, an error in the log every time the longest pause is reached, and the
// channel's last word in v_refunds.answer).
//
// Every process runs the loop. A claim sets when a refund is due again and commits before the channel
// is asked; whoever dies after it leaves the refund to the next one, and the channel carries an id out
// once:
//
//	wanted → claimed → asked → answered → ended
//	   ↑________________|_______|__________|   due again after the pause
//
// # Cancelled campaigns
//
// Each round also takes pages of the paid orders of cancelled campaigns and wants their refund under
// the id "cancel-ORDER": a second sweep, here or elsewhere, finds the refund and does nothing. The
// sweep goes in the order of payment and remembers its place; orders paid while it ran, or late, are
// behind it. Their units stay sold: a cancelled campaign sells nothing, whatever its refund_rule.
//
// # Neighbours
//
// cell/shard keeps and decides; cell/payment/provider is the channel; cell/closer closes the unpaid
// orders of cancelled campaigns.
package refund
