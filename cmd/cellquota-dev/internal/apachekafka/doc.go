// Package apachekafka turns this process into an Apache Kafka broker.
//
// Job: the log that production runs, for the questions that the embedded one
// cannot answer: leader epochs, transactions of its own, retention, throttling,
// the time that a real broker takes.
//
// Promise: Run writes the broker's configuration, gives an empty data directory
// its cluster id, and then becomes the broker (execve), so that the supervisor's
// child is the broker itself: signals reach it, its end is seen, nothing stands
// between. A directory that was formatted under another cluster id is refused.
// The broker is a cluster of one in KRaft mode; topics are made only by those
// who ask for them.
//
// Neighbours: `cellquota-dev apache-kafka` is its only caller; deploy/local/setup
// kafka brings Java and the jars.
package apachekafka
