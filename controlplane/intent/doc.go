// Package intent is what operators ask for, as conditional writes that any
// replica may make: provision a cell, keep a draft, begin a publish, pause,
// resume, amend, close and delete a campaign, let a cell join it, top up a cell, abort an
// operation.
//
// Every verb takes the caller's id, looks for its own trace first (so that a
// repeat, or a try whose answer was lost, answers the first result), decides with
// core on what its transaction read, and puts everything at once, its audit
// record included. validate only makes the same decision and puts nothing. What
// takes several steps is left as an open operation or journal record for the
// leader's planner.
//
// Neighbours: api calls it; store carries out; Shards and Topics are the two
// things outside etcd that provisioning needs.
package intent
