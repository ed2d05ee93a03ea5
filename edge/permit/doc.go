// Package permit gives out and checks permits: short-lived signed rights of one user to try for one
// SKU. It also keeps the rings of the other keys an edge verifies with.
//
// # Promise
//
//   - A permit says nothing about stock, and whoever holds one holds nothing: the home cell checks
//     it again and its script burns the nonce (K55).
//   - Check has one error for every cause: forged, of another campaign, SKU or user, or signed with
//     a key that was revoked. Whether it has expired is the caller's question, since a repeat may
//     come later than its permit lasts.
//   - Signing uses the key that the control plane calls ACTIVE. Where it says nothing, or names a
//     key whose file has not come here yet, it is the greatest key id on disk.
//
// # Neighbours
//
// internal/signed is the format; edge/routes brings the states of keys, key files are mounted.
package permit
