package allocator

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/cellquota/cellquota/allocator/quantity"
)

// claim is one cell's claim to a part of something: its share is
// weight ÷ Σ weights.
type claim struct {
	cell   string
	weight uint64
}

// apportion divides total by largest remainder over the claims and gives the
// shares in the order of the claims. Σ shares = total; a share is the exact one
// rounded down, or one more; a claim of weight 0 gets 0; the order of the claims
// changes nothing. field names the weights in an error: ErrNoWeight where all
// are 0, ErrWeightSum where their sum does not fit 64 bits.
//
// It never gives a claim more than its weight when total ≤ Σ weights, which
// PlanRebalance relies on to trim amounts.
func apportion(total quantity.Quantity, claims []claim, field string) ([]quantity.Quantity, error) {
	sum, err := sumWeights(claims, field)
	if err != nil {
		return nil, err
	}
	shares := make([]quantity.Quantity, len(claims))
	rests := make([]uint64, len(claims)) // numerators of the fractions, all over sum
	left := total
	for i, c := range claims {
		if shares[i], rests[i], err = total.MulRatio(c.weight, sum); err != nil {
			return nil, err // cannot be: weight ≤ sum, so the share is at most total
		}
		if left, err = left.Sub(shares[i]); err != nil {
			return nil, err // cannot be: rounded-down shares add up to at most total
		}
	}
	// The fractions add up to what is left, and each is below 1; so fewer units
	// are left than there are fractions, and one each is enough.
	for _, i := range byFraction(claims, rests)[:left.Int64()] {
		if shares[i], err = shares[i].Add(quantity.Must(1)); err != nil {
			return nil, err
		}
	}
	return shares, nil
}

func sumWeights(claims []claim, field string) (uint64, error) {
	var sum, carry uint64
	for _, c := range claims {
		if sum, carry = bits.Add64(sum, c.weight, 0); carry != 0 {
			return 0, &Error{Field: field, Rule: ErrWeightSum}
		}
	}
	if sum == 0 {
		return 0, &Error{Field: field, Rule: ErrNoWeight}
	}
	return sum, nil
}

// byFraction gives the indexes of the claims, largest fraction first, ties by
// cell id.
func byFraction(claims []claim, rests []uint64) []int {
	order := make([]int, len(claims))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(rests[b], rests[a]), cmp.Compare(claims[a].cell, claims[b].cell))
	})
	return order
}
