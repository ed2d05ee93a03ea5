package link

// Bell asks the link for a new registration: the shard refused this process's writer, or has another
// one. Ringing never blocks; rings that nobody heard yet are one.
type Bell struct{ rung chan struct{} }

// NewBell makes a bell.
func NewBell() *Bell { return &Bell{rung: make(chan struct{}, 1)} }

// Ring asks for a new registration now.
func (b *Bell) Ring() {
	select {
	case b.rung <- struct{}{}:
	default:
	}
}
