// Package config reads a program's settings from its flags, its environment,
// one YAML file and the defaults written beside the fields, in that precedence.
//
// Job: fill a struct whose fields name their keys:
//
//	type Config struct {
//		config.Common
//		Addrs []string      `config:"redis.addrs" required:"true" doc:"addresses of the admission store"`
//		TTL   time.Duration `config:"lease_ttl" default:"5s" min:"1s" max:"1m" doc:"how long a lease holds"`
//	}
//
// One key has three spellings: `redis.addrs` (nested in YAML), `--redis-addrs`
// (dots and underscores of flags are read as dashes, so --redis.addrs works as
// well) and CELLQUOTA_REDIS_ADDRS.
//
// Tags: config (key; on a struct field the prefix of its keys), default, doc,
// required, secret (masked wherever it is shown), min and max (numbers,
// durations, length of strings in bytes, count of lists), oneof (comma list;
// for lists it binds each element), dev (only accepted with `dev: true`).
//
// Promise: nothing is guessed. A key nobody knows is an error, whether in the
// file, among the flags or as CELLQUOTA_…, except that an environment variable
// of another of our programs (Options.Known) is ignored, since the environment
// reaches every child of the local platform. Every problem is reported at once,
// each with key, rule and where the value came from. Secrets are never printed.
//
// Neighbours: each component's root package defines its Config; cmd loads it.
package config
