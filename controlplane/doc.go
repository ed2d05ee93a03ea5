// Package controlplane owns intent: what is sold, who may write, who gets how
// much. Its replicas are stateless over etcd; one of them leads and runs the
// loops. A sale goes on when all of them are gone.
//
// This package is the wiring alone: config.go says what a replica can be told,
// wire.go makes the parts in the order in which they need each other. README.md
// lists the rooms.
package controlplane
