// Package access says who calls and what they may call.
//
// Operators show a bearer token; a file lists them by the token's SHA-256, so
// that the file alone lets nobody in. It is the bootstrap: every other operator has
// a token that an sre minted with CreateToken (tokens.go), "cq_ID_SECRET", which
// etcd keeps as the SHA-256 of the secret, with an end, and which every replica
// refuses once its view has the revocation. Cells and edges show their certificate, or
// in development the name they go by on loopback (internal/transport). roles.go
// is the table role × RPC; a method that is not in it is refused to everybody,
// and a test compares it with the services there are.
//
// A region-operator touches cells of its own regions only: the handler knows the
// cell and asks Region.
//
// Neighbours: wire.go gives both functions to the server; api asks Region and
// Name.
package access
