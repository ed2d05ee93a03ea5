// Package fault hurts on purpose: a wire between a client and a server (a small TCP
// proxy on loopback), and a process that dies at its n-th effect (Life).
//
// Three kinds of hurt, because programs meet them differently:
//
//	Break    connections end and new ones are refused: the peer's process is gone
//	Reset    connections end with a reset, new ones are taken: the peer started anew
//	Silence  bytes vanish in one direction or in both, connections stay and new
//	         ones are taken: a partition, or a peer that is frozen
//
// and Delay, which holds every piece of bytes back for a while. Heal ends all of
// it; connections over which bytes vanished are broken then, since what vanished
// is missing (a real network would have sent it again, late, or reset).
//
// Promise: a hurt holds from when its method returned. All goroutines and
// connections are gone when the test ends. What is held back is bounded by the
// kernel's buffers: a silenced direction is read and thrown away, a delayed one
// holds one piece at a time.
//
// Neighbours: tests of stores, views and clients put it before an etcd member or a
// replica; tests of drivers live lives. It knows none of them.
package fault
