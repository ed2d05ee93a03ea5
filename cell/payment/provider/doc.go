// Package provider speaks to a payment channel: what became of an attempt whose callback has not
// come, and please give this money back.
//
// # Promise
//
// An answer is what the channel said; everything else (time-outs, strange codes, bodies that do not
// parse, signatures that do not fit) is Unknown. Unknown is never a failure of the payment (a time-out
// must not close a paid order) and never the end of a refund: the caller asks again, a refund under
// the same refund_id, which the channel carries out at most once.
//
// # What an HTTP channel must offer
//
//	GET URL/orders/ORDER/payments/PAYMENT
//	    200 {"status": "SUCCEEDED"|"FAILED"|"NONE"|"UNKNOWN", "amount"?, "currency"?}, 404: never heard of it
//	GET URL/orders/ORDER/payments
//	    200 {"payments": [{"payment_id", "status": "SUCCEEDED"|"FAILED"|"REFUNDED"|"UNKNOWN", "amount"?, "currency"?}]}:
//	    every payment of the order, whoever began it; [] where it never heard of one. UNKNOWN: still under way.
//	    REFUNDED: taken, and all of it given back. Asked only after a shard was recovered, when attempts may have
//	    been lost with their ids. A channel without it may answer 404, which says nothing: such orders wait for
//	    a person.
//	PUT URL/orders/ORDER/payments/PAYMENT/refunds/REFUND  {"amount", "currency"}
//	    200 {"status": "REFUNDED"|"PENDING"|"REFUSED"|"UNKNOWN", "amount"?, "currency"?}; a repeat answers the
//	    same refund. REFUNDED with less than was asked for is a part: what is left is asked for under another
//	    id. Without an amount it is all that was asked for.
//
// With keys both directions are signed (Payment-Signature, as callbacks are) over
// METHOD SP PATH LF BODY; the channel's answer over "ANSWER" SP PATH LF BODY, so that no answer serves
// for another question.
//
// Neighbours: cell/closer asks before it closes an order with an open attempt, cell/payment/refund asks
// for refunds.
package provider
