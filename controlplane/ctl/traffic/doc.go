// Package traffic sends the load generator's customers to a local platform.
//
// Job: turn a target into what edge/load needs (edges, the secret that signs identity tokens, the
// payment channel's key), find out what a plan leaves open (SKUs, purchase scope), show progress.
//
// Promise: the generator knows the platform by its HTTP edges alone; the control plane is asked only
// for the purchase scope, and a run does without it when it does not answer.
//
// Neighbours: edge/load drives, edge/client calls; `dev load`, `dev pay` and the demo use this.
package traffic
