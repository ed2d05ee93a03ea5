// Package soldout remembers, for a moment, that a cell had no unit of a SKU left or was full, so
// that customers who cannot get anything there are refused without asking it again.
//
// # Promise
//
//   - One mark is about one (campaign, SKU, cell): what one cell is out of never hides what another
//     still has.
//   - Empty is marked only on a cell's own word that its stock was 0. A request for more units than
//     are left marks nothing.
//   - A mark lives for the TTL and not longer (K15): units come back by expiry, by top-up and by
//     return, and no edge is told. An admission takes the mark away at once.
//   - While a cell's gate is THROTTLED, an edge lets through as many first attempts for a TTL as the cell
//     has units left, and the campaign's gate.margin more (throttle.go).
//   - Whether something is sold out for good is not known here; the control plane says so.
//
// # Neighbours
//
// edge/api asks before the home cell and tells what it answered; GET of a campaign is summed up
// from the marks of its cells.
package soldout
