package telemetry

import "sync"

// Other is the label value of everything beyond a LabelSet's bound.
const Other = "other"

// LabelSet bounds the values of one label. Each value is a time series for good
// in every scraper, so an id that customers or operators choose never becomes a
// label without passing through one. Safe for concurrent use.
type LabelSet struct {
	room int
	mu   sync.Mutex
	seen map[string]struct{}
}

// NewLabelSet returns a set with room for the given number of values (at least 1).
func NewLabelSet(room int) *LabelSet {
	return &LabelSet{room: max(room, 1), seen: make(map[string]struct{})}
}

// Value returns s while there is room for it or it was seen before, else Other.
func (l *LabelSet) Value(s string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.seen[s]; !known && len(l.seen) >= l.room {
		return Other
	}
	l.seen[s] = struct{}{}
	return s
}

// Forget gives s's room back: for a campaign that was archived. The caller also
// deletes the series that carry s.
func (l *LabelSet) Forget(s string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.seen, s)
}
