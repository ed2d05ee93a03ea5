// Package platform is the door to a running local platform, for programs that
// did not start it.
//
// Job: the files a platform leaves under its data directory (endpoints.json and
// what lies beside it), and a small control protocol by which a process of the
// platform is killed, stopped, continued and started again.
//
// Promise: endpoints.json exists exactly while every part is ready to serve, is
// complete whenever it can be read (it is replaced by rename), is readable by
// its owner only, and names the present process ids even after a restart. The
// control socket is a unix socket in the data directory with mode 0600; it
// works however long the directory's path is. A process that was killed through
// it stays down until it is started through it.
//
// Neighbours: cellquota-dev writes the files and serves the protocol; cellctl's
// `dev kill` and `dev start`, the demo and the system tests use Client. This
// package imports the standard library only, so that none of the embedded
// servers comes with it.
package platform
