// Package celltest is the edge's one fake neighbour: a cell and a control plane that behave, as far
// as an edge can see, behind their real gRPC services.
//
// The cell keeps stock, requests and orders in memory by the rules of the contract (replay before
// everything, one order per user, conflict on other parameters), answers in batches and out of
// order, and can be told to answer something else, to be silent or to break its streams. It knows
// no fence, no Redis and no Kafka; what the real cell does about those is tested in its own rooms
// and in tests/system.
//
// Only tests import it.
package celltest
