// Package client is the reference client of the edge's HTTP contract: what an app, a payment channel
// or a load generator has to do, done right.
//
// # Promise
//
//   - One method, one HTTP call, one typed answer: status, code and what the body says. Nothing is
//     tried again behind the caller's back.
//   - A call without a complete answer is ErrUnknown: it may have had its effect. A call that never
//     left this machine is ErrNotSent. Neither is ever taken for a refusal.
//   - Next says what contract §3 asks for after an answer: stop, or the same request under the same
//     id after so long, with Retry-Attempt counted up exactly where no answer came or where the
//     edge itself could not find out.
//   - Follow asks for a request's state with its receipt, as often as the answers say, until it has
//     one that lasts.
//   - Connections are kept alive and bounded. A call allocates little more than net/http itself.
//
// # Neighbours
//
// edge/load and cellctl use it; it speaks HTTP to edge/api and imports nothing of it. Identity
// tokens for development are minted here too, in the shape that edge/identity reads.
package client
