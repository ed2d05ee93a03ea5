// Package postgres reads the address of a shard and says whether it may be used: one
// rule for the roles app, reader and fencer, and for the schema's owner.
//
// Job: Parse and ParsePool turn the text of a DSN file into a driver's configuration.
//
// Promise: what leaves this machine is encrypted, and the server's certificate is for
// the host that was called: sslmode=verify-full. sslmode=verify-ca is refused, because
// every process of ours has a certificate of the same authorities and could pose as the
// shard; require and prefer check nothing. Plain text is for development on loopback; a
// Unix socket never leaves the machine. The driver's reading is judged, not the text, so
// that PGSSLMODE and service files count as well. No error holds the address, nor the
// password in it. Certificates that are renewed on disk are used from the next
// connection on (Renew).
//
// Neighbours: cell/shard, fencing/fencer, and of the control plane report/shards, check
// and reclaim.
package postgres
