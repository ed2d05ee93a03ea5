package signed

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestRotationWithoutDowntime: three processes hear of every step of five rotations
// at any moment, in any order; each issues permits all the while, and everything that
// one signed verifies at every other one at once.
func TestRotationWithoutDowntime(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	kid := func(n int) string { return fmt.Sprintf("k%d", n) }
	writeFile(t, dir, "permit", kid(0), strings.Repeat("0", 32))
	rings := []*Ring{ringOf(t, dir), ringOf(t, dir), ringOf(t, dir)}
	stop := make(chan struct{})
	var issuing sync.WaitGroup
	signedBy := make([]map[string]int, len(rings))
	began := make([]chan struct{}, len(rings))
	for i, mine := range rings {
		signedBy[i], began[i] = map[string]int{}, make(chan struct{})
		issuing.Go(func() {
			begin := sync.OnceFunc(func() { close(began[i]) })
			defer begin()
			for {
				select {
				case <-stop:
					return
				default:
				}
				keys, by := mine.Signer(at)
				token, err := somePermit.Sign(keys, by)
				if err != nil {
					t.Error(err)
					return
				}
				signedBy[i][by]++
				begin()
				for j, other := range rings {
					if _, err := VerifyPermit(token, other.Keys()); err != nil {
						t.Errorf("what %d signed with %s is refused at %d", i, by, j)
						return
					}
				}
			}
		})
	}
	all := func(what func(*Ring) error) {
		for _, r := range rings {
			if err := what(r); err != nil {
				t.Error(err)
			}
		}
	}
	for _, b := range began { // each signs while the keys change under it
		<-b
	}
	states := []Status{{KID: kid(0), State: Active, NotBefore: at}}
	for n := 1; n <= 5; n++ {
		writeFile(t, dir, "permit", kid(n), strings.Repeat(fmt.Sprint(n), 32))
		all((*Ring).Reload) // everybody told of the file: only now it may become ACTIVE
		states[n-1].State = Retiring
		states = append(states, Status{KID: kid(n), State: Active, NotBefore: at.Add(-time.Minute + time.Duration(n)*time.Second)})
		all(func(r *Ring) error { return r.Follow(states) }) // one after the other
	}
	close(stop)
	issuing.Wait()
	for i, by := range signedBy {
		if len(by) == 0 || by[""] > 0 {
			t.Errorf("process %d signed %v", i, by)
		}
	}
	for _, r := range rings {
		if got := signer(r, at); got != kid(5) {
			t.Errorf("%s signs at the end", got)
		}
	}
}
