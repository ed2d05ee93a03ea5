// Package homes answers whether a user's bucket belongs to this cell (architecture, section 5).
//
// It is pure: the shard's bucket rows in, yes or no and the mirror's bitmap out. One order per user
// over all cells (I4) rests on the answer, so what no row covers, what is CLOSED and what is being
// imported is not owned; and a table without any row owns nothing.
//
// Neighbours: cell/shard reads the rows inside the order transaction and asks; the mirror gets the
// bitmap, so that a request for another home is refused before it takes stock.
package homes
