// Package provider asks a payment channel what became of an attempt, when its callback has not come.
//
// Promise: an answer is what the channel said; everything else (time-outs, strange codes, bodies that
// do not parse) is Unknown, never a failure of the payment: a timeout must not close a paid order.
//
// Neighbours: cell/closer asks before it closes an order with an open attempt.
package provider
