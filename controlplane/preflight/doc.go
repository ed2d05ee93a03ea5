// Package preflight asks, before the hour, whether everybody could serve a campaign
// now: a shadow request to every live process of every cell of the campaign,
// and the revision that each edge has acknowledged.
//
// Promise: it takes nothing and changes nothing; a process that is silent, a cell
// without a process and an edge that is behind are rows with a fault, never an error
// of the whole; calls run side by side, bounded in number and in time, so that one
// dead process does not hold up the answer.
//
// Ready is judged against the newest version of the record at the moment of asking
// (judge.go, pure). Publishing does not wait for preflight: it has the processes'
// own acknowledgements. Preflight is for people.
//
// Neighbours: api makes the rows a message; cell/api answers Shadow; api.Routes
// knows the edges.
package preflight
