// Package kafka is how every process of ours reaches the brokers: one constructor of
// clients, so that no client goes round it in plain text.
//
// Job: New makes a client of franz-go; Access.Options add the certificates and the
// login that a configuration or a cell's file names.
//
// Promise: a connection is encrypted under the newest certificate files, or it stays on
// this machine: the address that is connected to is judged, so that a broker that
// advertises another machine's is refused too (transport.ErrPlainStore). The password is
// read at every login and is part of no error.
//
// Neighbours: the cell's producers and consumers, the control plane's topics and check;
// internal/transport opens the connections.
package kafka
