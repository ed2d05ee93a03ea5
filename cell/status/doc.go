// Package status answers what became of a customer's request.
//
// Job: the mirror first, because it is fast; then the shard, because it is true. A state that is not
// final is never taken from the mirror alone: an admission of a fence version below messages_from
// reads REJECTED/CELL_FENCED, one of a build below the shard's raised one REJECTED/LOST_ADMISSION, both
// judged in the order in which the message itself would be judged (architecture 6, Receipt).
//
// Promise (I6): with the receipt of a 202 the answer is never "not found". Unknown is not no: while
// the mirror cannot be asked, or the shard's read rate is used up, an unknown request is
// ErrUnavailable, not ErrNotFound. Nobody learns of another user's request.
//
// Neighbours: cell/api serves it; cell/admission and cell/shard are asked.
package status
