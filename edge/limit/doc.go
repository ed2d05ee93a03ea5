// Package limit refuses calls that come too often or too many at once.
//
// # Promise
//
//   - Nothing here grows without bound: buckets live in caches of fixed size that forget the least
//     used, a forgotten bucket starts full again, and concurrency is a counter.
//   - A network address is the peer's own, or what a trusted proxy says; a header from anyone else
//     is not even looked at (K19). A bucket refills; nobody is ever banned, least of all an address
//     that many people share.
//   - The user is asked first: what one customer is refused takes nothing from the bucket of the
//     device or network he shares with others.
//   - First attempts, repeats and other calls have buckets of their own under the same rules, so a
//     customer who got no answer is not locked out by the attempts that went before.
//
// # Neighbours
//
// The rules are route.Rules, from the campaign; the ceilings are the edge's own configuration.
// edge/api asks and writes the 429.
package limit
