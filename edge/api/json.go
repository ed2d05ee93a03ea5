package api

import (
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// object writes one JSON object, name by name, without reflection: answers are the edge's hottest
// code. Names are ours and need no quoting.
type object struct {
	b []byte
}

func newObject(b []byte) object { return object{append(b, '{')} }

// end closes the object and returns its bytes.
func (o *object) end() []byte { return append(o.b, '}') }

func (o *object) name(n string) {
	if o.b[len(o.b)-1] != '{' {
		o.b = append(o.b, ',')
	}
	o.b = append(append(append(o.b, '"'), n...), '"', ':')
}

// str writes a text. Bytes that are no UTF-8 become the replacement character.
func (o *object) str(n, v string) {
	o.name(n)
	o.b, _ = jsontext.AppendQuote(o.b, v) // the error only says that something was replaced
}

// opt writes a text unless it is empty.
func (o *object) opt(n, v string) {
	if v != "" {
		o.str(n, v)
	}
}

func (o *object) int(n string, v int64) {
	o.name(n)
	o.b = strconv.AppendInt(o.b, v, 10)
}

func (o *object) bool(n string, v bool) {
	o.name(n)
	o.b = strconv.AppendBool(o.b, v)
}

// raw writes a value that is JSON already.
func (o *object) raw(n string, v []byte) {
	o.name(n)
	o.b = append(o.b, v...)
}

// stamp is how instants are written: UTC, to the millisecond.
const stamp = "2006-01-02T15:04:05.000Z"

func (o *object) time(n string, t time.Time) {
	o.name(n)
	o.b = append(o.b, '"')
	o.b = t.UTC().AppendFormat(o.b, stamp)
	o.b = append(o.b, '"')
}

// optMs writes an instant given in Unix milliseconds, unless it is 0.
func (o *object) optMs(n string, ms int64) {
	if ms != 0 {
		o.time(n, time.UnixMilli(ms))
	}
}

// list writes an array of n objects.
func (o *object) list(name string, n int, each func(i int, o *object)) {
	o.name(name)
	o.b = append(o.b, '[')
	for i := range n {
		if i > 0 {
			o.b = append(o.b, ',')
		}
		one := newObject(o.b)
		each(i, &one)
		o.b = one.end()
	}
	o.b = append(o.b, ']')
}
