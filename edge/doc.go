// Package edge is the HTTP entrance of Cellquota: it finds a customer's home cell and refuses early
// and politely.
//
// Job: put the edge's rooms together and run them. The order of Run is the order of the parts: logs
// and metrics, keys and identities, routes, the ways to the cells, the HTTP face.
//
// Promise: an edge holds nothing that matters. It may be killed at any time; what a customer was
// promised is in his home cell. It serves by its last routes while the control plane is gone.
//
// Neighbours: the control plane's RoutingService, the cells' AdmissionService and OrderService, the
// identity provider's keys. See README.md for the rooms.
package edge
