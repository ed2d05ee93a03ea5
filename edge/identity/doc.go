// Package identity turns the bearer token of a call into a verified identity, or refuses it.
//
// # Promise
//
//   - One algorithm per key. The shared secret verifies HS256 and nothing else; a key of a JWK set
//     verifies the algorithm it names or, where it names none, the one of its type. "none" and a
//     public key used as an HMAC secret are never accepted (K55).
//   - Issuer, audience and expiry are always checked; a token without an expiry is refused.
//   - The user is the subject, exactly as ids.ParseUserID wants it, and comes from nowhere else: no
//     header, no query, no body names a user (K19).
//   - Keys of a JWK set are fetched by one goroutine, JWKS.Run, whose owner waits for it: on a period, and
//     for a key id that nobody knows at most once in half a minute. A set that cannot be fetched changes
//     nothing; before the first one ErrNoKeys says that tokens cannot be judged, not that they are bad.
//   - ErrUnauthenticated is one error for every cause, so that a caller learns nothing about keys;
//     the cause is in the error's chain for a debug log, and holds no part of the token.
//
// # Neighbours
//
// edge/api asks for each call; edge/client mints development tokens of the same shape. Keys come
// from a file or, by HTTP, from the identity provider's JWK set.
package identity
