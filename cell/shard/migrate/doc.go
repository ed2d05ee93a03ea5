// Package migrate brings a shard's schema to this program's step and makes the roles that use it.
//
// Promise: Up may be run by several hosts at once and again at any time; it never goes down.
// CreateRoles and Up may run in either order: privileges are complete after both. Check tells an
// operator what a program would find, without changing anything.
//
// The owner of the schema runs it (a superuser, or a role that may terminate the cell's backends,
// because the fence functions run with the owner's rights). Servers never migrate by themselves.
//
// Neighbours: cell/shard/migrations (the SQL), cell/shard (refuses a schema out of reach).
package migrate
