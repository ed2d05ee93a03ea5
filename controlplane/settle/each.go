package settle

import "sync"

// atOnce bounds the shards of one campaign that are read at the same time.
const atOnce = 16

// each calls f for every item, bound of them at once, and gives the results in the items'
// order.
func each[T, R any](items []T, bound int, f func(T) R) []R {
	out := make([]R, len(items))
	turn := make(chan struct{}, bound)
	var wg sync.WaitGroup
	for i, item := range items {
		turn <- struct{}{}
		wg.Go(func() {
			defer func() { <-turn }()
			out[i] = f(item)
		})
	}
	wg.Wait()
	return out
}
