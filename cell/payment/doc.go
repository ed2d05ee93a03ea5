// Package payment takes what customers and the payment channel say about orders to the shard.
//
// # Promise
//
// Start, Callback and Cancel answer the same when they are repeated. The order is changed by
// compare-and-set under its lock, in one transaction with its reservation, stock, ledger and effects;
// what the step means is decided by the table in cell/reservation. A success after the order was
// closed, or a second one on a paid order, never revives or changes it: it leads to exactly one
// refund. A callback that does not fit is recorded once and refused.
//
// # Micro-batches
//
// Calls that arrive together share one transaction (Service.Run is the one worker): a stock row is
// locked once for many payments, not once for each. A call that gave up waiting may still have
// happened; its repeat tells.
//
// # Neighbours
//
// cell/shard writes; cell/payment/provider asks the channel (for cell/closer and for
// cell/payment/refund, which drives what Refund and late payments want); cell/api and the edge have
// verified the signature before Callback is called.
package payment
