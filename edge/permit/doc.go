// Package permit gives out and checks permits: short-lived signed rights of one user to try for one
// SKU.
//
// # Promise
//
//   - A permit says nothing about stock, and whoever holds one holds nothing: the home cell checks
//     it again and its script burns the nonce (K55).
//   - Check has one error for every cause: forged, of another campaign, SKU or user, or signed with
//     a key that was revoked. Whether it has expired is the caller's question, since a repeat may
//     come later than its permit lasts.
//   - Signing uses the key that the ring says signs now (internal/signed, Ring).
//
// # Neighbours
//
// internal/signed is the format and the ring of keys; the edge's root makes the ring follow the
// states that edge/routes brings.
package permit
