// Package risk is the hook for whoever judges customers' behaviour: it is told what calls came to, and
// what it says about a user or a device counts from then on.
//
//	edge/api ──Offer──▶ queue ──batch──▶ Judge (HTTP) ──verdicts──▶ memory ──Tier──▶ edge/api
//
// # Promise
//
//   - No customer ever waits for a judge: Offer never blocks, Tier reads memory. What does not
//     fit into the queue is dropped and counted; so is a batch that the judge did not take in a few tries.
//   - Outcomes are fed back: permits, requests, cancellations, payments and what the channel said
//     of them, each with user, device and network as far as the edge knows them.
//   - A verdict names a risk tier for a user or a device and lasts for its time, at most an hour. It stands
//     above the token's tier; a user's stands above his device's. A campaign's deny_risk_tiers and
//     payment_ttl_by_risk then do what they do. A network has no verdicts: many people share one (K19).
//   - Bounded: queue, batch, tries, answer and the number of verdicts that are remembered. Run is the one
//     goroutine; its owner waits for it. What is queued when it is stopped is lost.
//   - An edge without a judge has a nil Feed, which does nothing.
//
// # Neighbours
//
// edge/api offers and asks; edge's root makes the Judge from its configuration.
package risk
