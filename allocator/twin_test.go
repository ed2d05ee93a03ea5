package allocator_test

// The plain twins: the same answers the long way round, on big rationals and by
// looking at every bucket. They share no code with the package.

import (
	"fmt"
	"math/big"
	"sort"

	"pgregory.net/rapid"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/allocator/quantity"
)

// plainShares divides total by largest remainder over named weights.
func plainShares(total int64, weights map[string]uint64) map[string]int64 {
	sum := new(big.Int)
	var names []string
	for name, w := range weights {
		sum.Add(sum, new(big.Int).SetUint64(w))
		names = append(names, name)
	}
	shares := map[string]int64{}
	fractions := map[string]*big.Rat{}
	left := total
	for _, name := range names {
		exact := new(big.Rat).SetFrac(
			new(big.Int).Mul(big.NewInt(total), new(big.Int).SetUint64(weights[name])), sum)
		floor := new(big.Int).Quo(exact.Num(), exact.Denom())
		shares[name] = floor.Int64()
		fractions[name] = new(big.Rat).Sub(exact, new(big.Rat).SetInt(floor))
		left -= floor.Int64()
	}
	for ; left > 0; left-- {
		sort.Strings(names)
		best := names[0]
		for _, name := range names {
			if fractions[name].Cmp(fractions[best]) > 0 {
				best = name
			}
		}
		shares[best]++
		fractions[best] = big.NewRat(-1, 1)
	}
	return shares
}

// plainHomes gives the home of each bucket as a list of n names.
func plainHomes(n int, weights map[string]uint64) []string {
	sizes := plainShares(int64(n), weights)
	var names []string
	for name := range sizes {
		names = append(names, name)
	}
	sort.Strings(names)
	var homes []string
	for _, name := range names {
		for range sizes[name] {
			homes = append(homes, name)
		}
	}
	return homes
}

// drawnCells draws 1 to most distinct cell ids, in random order.
func drawnCells(t *rapid.T, most int) []string {
	ids := rapid.SliceOfNDistinct(rapid.IntRange(0, 3*most), 1, most, rapid.ID[int]).Draw(t, "cells")
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = fmt.Sprintf("cell-%d", id)
	}
	return names
}

func drawnUnits(t *rapid.T, name string, most int64) quantity.Quantity {
	return quantity.Must(rapid.OneOf(rapid.Int64Range(0, min(most, 20)), rapid.Int64Range(0, most)).Draw(t, name))
}

// drawnWeight draws ties, zeros and extremes often.
func drawnWeight(t *rapid.T, name string) uint32 {
	return rapid.OneOf(rapid.Uint32Range(0, 3), rapid.Uint32(), rapid.Just(uint32(1<<32-1))).Draw(t, name)
}

func shuffled[E any](t *rapid.T, list []E) []E {
	return rapid.Permutation(list).Draw(t, "order")
}

func weightsOf(cells []allocator.CellWeight) map[string]uint64 {
	out := map[string]uint64{}
	for _, c := range cells {
		out[c.Cell] = uint64(c.Weight)
	}
	return out
}

func drawnCellWeights(t *rapid.T, most int) []allocator.CellWeight {
	var out []allocator.CellWeight
	var any bool
	for _, name := range drawnCells(t, most) {
		w := drawnWeight(t, "weight of "+name)
		any = any || w > 0
		out = append(out, allocator.CellWeight{Cell: name, Weight: w})
	}
	if !any {
		out[0].Weight = 1
	}
	return out
}
