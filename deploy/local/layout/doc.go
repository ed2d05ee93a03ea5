// Package layout is the plan of a local platform: which processes there are,
// where each listens, which files belong to whom, and what those files say.
//
// Job: check what `cellquota-dev up` was asked for; name every process and
// port; find the programs; make the secrets once; write every configuration
// file, anew at each start.
//
// Promise: what this release cannot run is refused by name before anything is
// written. The plan is a pure function of the options and the ports. Secrets
// are random, made once for a data directory, and in files of mode 0600; no
// secret is on a command line. A configuration file has only documented keys,
// and `--set` adds to it without a word of our own about what a key means: the
// program that reads it knows.
//
// Neighbours: ports gives addresses; boot carries the plan out; platform has
// the shape that others see.
package layout
