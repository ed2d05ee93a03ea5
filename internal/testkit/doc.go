// Package testkit starts the real neighbours of Cellquota for a test: PostgreSQL,
// Redis, etcd and Kafka, and waits for things without sleeping.
//
// # Promise
//
//   - Every store is the real server (Kafka is kfake, which speaks the real
//     protocol but knows neither replication nor throttling). There is no second
//     dialect to be right for.
//   - Servers listen on loopback, on ports leased between all test binaries of
//     this machine, and never outlive the test binary: not after a panic, a
//     time-out or a kill -9 (see process.go and home.go).
//   - What a test changes, no other test sees: one database per test, one Redis,
//     etcd or Kafka per call.
//   - A missing server is a failure that says what to install, never a skip.
//   - Every wait is bounded and says, when it fails, what it last saw.
//
// # What is given up for speed
//
// The shared PostgreSQL runs with fsync and full_page_writes off and etcd without
// fsync: a crash of the machine may lose data, a crash of the process may not.
// Locks, isolation levels and synchronous_commit's semantics are untouched. A test
// that needs more starts its own server by OwnPostgres.
//
// # Neighbours
//
// Only _test files and tests/ import testkit (the tidy test sees to it); testkit
// imports no component, so a schema comes in as a Template and topics as names.
package testkit
