// Package system runs whole platforms: real etcd, Kafka protocol, Redis, PostgreSQL and our programs as
// processes, with faults, and judges them from outside.
//
// Job: what no single room can show. Every test starts its own platform through cellquota-dev, drives
// it with cellctl as a user would, and has a checker beside it that reads etcd and every shard each
// 100 ms with code of its own.
//
// Build tag system; `make test-system` builds the programs first.
package system
