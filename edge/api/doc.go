// Package api is the HTTP face of Cellquota: contract §3, and nothing beside it.
//
// # The funnel
//
// A request to buy passes these layers in order; each refuses as early as it can and says only what
// it knows itself:
//
//	campaign     known, and now is in its window
//	identity     the bearer token
//	body         exactly the contract's JSON
//	permit       MAC, campaign, SKU, user, expiry
//	eligibility  claims and risk tier; the home region's domain
//	limit        user, device, network, claims; how many at once
//	collapse     concurrent repeats become one ask
//	soldout      what the home cell was out of a moment ago
//	home         the home cell decides
//
// A call with Retry-Attempt was made before and got no answer. It passes window, permit expiry and
// soldout, because only the home cell knows whether the first one was admitted.
//
// # Promise
//
//   - Every answer has a Trace-Id; every error is application/problem+json with a code of
//     catalog.go, which is also what docs/reference/http-codes.md is made from.
//   - Where waiting helps, Retry-After and retry_after_ms are there, jittered.
//   - An unknown outcome is 503 NOT_READY, never "sold out" and never "not found"; nothing here
//     asks again under another id or at another cell.
//   - No answer says that a purchase succeeded before its order is PAID, or whether another user,
//     code or bucket exists.
//   - A client that hangs up changes nothing about what was asked in its name (K58).
//
// # Shape
//
// A handler takes a call and returns a reply; one place writes replies, counts them and sets the
// headers that all have. Handlers hold no state; the Server's parts do.
//
// # Neighbours
//
// identity, permit, limit, soldout and proxy beside it; routes for the snapshot; route for what is
// decided from values; cells behind proxy.
package api
