// Package allocator decides who gets how much. It is arithmetic and nothing
// else: no context, clock, random number, log or I/O, standard library only, so
// that the same inputs give the same plan on every replica and on every day.
//
// # The words
//
// A campaign may sell sale_limit units of a SKU. A Split cuts them into one
// grant per cell and a central reserve that no cell holds. While the sale runs,
// PlanRound moves tranches of the reserve to cells that run low, PlanRebalance
// moves what one cell has too much of to others, and Redistribute hands out
// what a fence proved unsold. DealBuckets decides which cell is home to which
// of the 4,096 hash buckets of users; units and buckets should be shared in
// like proportion, and CheckSkew says where they are not. In a lottery, Draw
// says who of those that an EntrantList digested wins a unit.
//
// # What it promises
//
//   - Sums are exact (I1): limit = reserve + Σ grants after a split, and a
//     rebalance changes neither the reserve plus the grants nor a sold unit.
//     Every plan has a Check, and no function returns a plan that fails it.
//   - Shares are fair to the unit. Largest remainder: each cell gets its exact
//     share rounded down, and the units left over go, one each, to the largest
//     fractions. So nobody is below the rounded-down share or more than one unit
//     above it, and equal weights differ by at most one unit (K37).
//   - The order in which cells are listed does not matter; ties go to the cell
//     whose id sorts first, compared byte by byte.
//   - Integers only. A product of units and a 64-bit weight is held in 128 bits;
//     no float appears, so nothing drifts with the size of a weight (K38).
//   - Bad input is an *Error that names the field, the rule and what was given;
//     it never panics and never repairs a request by guessing.
//
// # Neighbours
//
// controlplane calls it and carries plans out, one numbered adjustment per
// grant or return; edge and cell use HomeMap to look a bucket up. The hash of a
// user id is computed in internal/ids: this package takes the hash.
//
// Each clever thing here has a plain twin in the tests (math/big, a loop over
// every bucket) that must agree with it on random input.
package allocator
