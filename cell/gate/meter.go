package gate

// smoothing is the weight of the newest measurement.
const smoothing = 0.3

// Sample is one look at the counters of a mirror.
type Sample struct {
	AtMS        int64  // Redis TIME
	Life        string // build of the mirror; counters start anew with it
	Settled     int64  // admissions that got their outcome since the build
	Outstanding int64
}

// Meter measures outcomes per second. Only time under backlog counts: an idle cell
// is not a slow one. The zero Meter is ready.
type Meter struct {
	last Sample
	rate float64
}

// Observe takes a sample and returns the rate; 0: never measured.
func (m *Meter) Observe(s Sample) float64 {
	span := s.AtMS - m.last.AtMS
	if s.Life == m.last.Life && span > 0 && s.Outstanding > 0 && m.last.Outstanding > 0 && s.Settled >= m.last.Settled {
		now := float64(s.Settled-m.last.Settled) * 1000 / float64(span)
		if m.rate == 0 {
			m.rate = now
		} else {
			m.rate += smoothing * (now - m.rate)
		}
	}
	m.last = s
	return m.rate
}
