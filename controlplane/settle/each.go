package settle

import "sync"

// atOnce bounds the shards that are read at the same time.
const atOnce = 16

// each calls f for every item, several at once, and gives the results in the items'
// order.
func each[T, R any](items []T, f func(T) R) []R {
	out := make([]R, len(items))
	turn := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	for i, item := range items {
		wg.Go(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			out[i] = f(item)
		})
	}
	wg.Wait()
	return out
}
