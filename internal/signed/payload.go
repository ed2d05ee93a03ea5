package signed

import (
	"encoding/binary"
	"time"
)

// A payload is its fields in the order of the struct: a text is one byte of
// length and its bytes, a number or a time (milliseconds since 1970; 0 is the
// zero time) eight bytes big endian. There is nothing between or after them.

type writer struct{ buf []byte }

func (w *writer) text(s string) {
	w.buf = append(w.buf, byte(len(s)))
	w.buf = append(w.buf, s...)
}

func (w *writer) number(n int64) { w.buf = binary.BigEndian.AppendUint64(w.buf, uint64(n)) }

func (w *writer) time(t time.Time) {
	if t.IsZero() {
		w.number(0)
		return
	}
	w.number(t.UnixMilli())
}

// reader reads what writer wrote; after the first thing that does not fit, bad is
// set and every read is empty.
type reader struct {
	buf []byte
	bad bool
}

func (r *reader) take(n int) []byte {
	if r.bad || len(r.buf) < n {
		r.bad = true
		return nil
	}
	taken := r.buf[:n]
	r.buf = r.buf[n:]
	return taken
}

func (r *reader) text() string {
	n := r.take(1)
	if n == nil {
		return ""
	}
	return string(r.take(int(n[0])))
}

func (r *reader) number() int64 {
	b := r.take(8)
	if b == nil {
		return 0
	}
	return int64(binary.BigEndian.Uint64(b))
}

func (r *reader) time() time.Time {
	n := r.number()
	if n == 0 {
		return time.Time{}
	}
	return time.UnixMilli(n).UTC()
}

// complete reports whether everything was read and nothing is left.
func (r *reader) complete() bool { return !r.bad && len(r.buf) == 0 }
