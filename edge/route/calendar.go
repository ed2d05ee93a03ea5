package route

import "time"

// Calendar is what the clock and the operators say about a call, before anything else is known.
type Calendar uint8

// The verdicts.
const (
	// Go: nothing stands against it.
	Go Calendar = iota
	// NotStarted: before the first instant.
	NotStarted
	// Ended: at or after CloseAt, or closed by hand.
	Ended
	// OnHold: campaign or SKU paused by an operator.
	OnHold
	// SoldOut: the control plane declared the SKU final.
	SoldOut
)

// RequestCalendar judges a first attempt to buy s at now. A repeat is not judged: its home cell
// may have answered it before the window closed (K65, contract §3).
func (c *Campaign) RequestCalendar(s SKU, now time.Time) Calendar {
	return c.judge(s, c.OpenAt, now)
}

// PermitCalendar judges the claim of a permit at now.
func (c *Campaign) PermitCalendar(s SKU, now time.Time) Calendar {
	return c.judge(s, c.ClaimFrom, now)
}

// EntryCalendar judges a first try to enter the campaign's lottery at now.
func (c *Campaign) EntryCalendar(now time.Time) Calendar {
	switch {
	case c.Stage == Closed || !now.Before(c.Lottery.EntryCloseAt):
		return Ended
	case c.Stage == Paused:
		return OnHold
	case now.Before(c.Lottery.EntryOpenAt):
		return NotStarted
	default:
		return Go
	}
}

func (c *Campaign) judge(s SKU, from, now time.Time) Calendar {
	switch {
	case c.Stage == Closed || !now.Before(c.CloseAt):
		return Ended
	case s.Final:
		return SoldOut
	case c.Stage == Paused || s.Paused:
		return OnHold
	case now.Before(from):
		return NotStarted
	default:
		return Go
	}
}

// PermitWindow is the life of a permit claimed at now: usable from the start of the sale, and for
// PermitTTL from then.
func (c *Campaign) PermitWindow(now time.Time) (notBefore, expires time.Time) {
	notBefore = now
	if now.Before(c.OpenAt) {
		notBefore = c.OpenAt
	}
	return notBefore, notBefore.Add(c.PermitTTL)
}

// NextBoundary is how long what GET says about the window stays true: until entry opens, until OpenAt, then until
// CloseAt, then for good (ok is false).
func (c *Campaign) NextBoundary(now time.Time) (d time.Duration, ok bool) {
	switch {
	case c.Lottery != nil && now.Before(c.Lottery.EntryOpenAt):
		return c.Lottery.EntryOpenAt.Sub(now), true
	case now.Before(c.OpenAt):
		return c.OpenAt.Sub(now), true
	case now.Before(c.CloseAt):
		return c.CloseAt.Sub(now), true
	default:
		return 0, false
	}
}
