package render

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// JSON is a message as scripts read it, indented by two spaces, with a line break at the end.
func JSON(m proto.Message) []byte {
	var w writer
	w.message(m.ProtoReflect())
	var out bytes.Buffer
	_ = json.Indent(&out, w.text, "", "  ") // what was just written is valid
	return append(out.Bytes(), '\n')
}

// writer appends JSON text.
type writer struct{ text []byte }

func (w *writer) raw(s string) { w.text = append(w.text, s...) }

// quote appends a string; proto strings are valid UTF-8, and an error would leave the rest out.
func (w *writer) quote(s string) {
	quoted, err := jsontext.AppendQuote(w.text, s)
	if err != nil {
		quoted, _ = jsontext.AppendQuote(w.text, strings.ToValidUTF8(s, "\uFFFD"))
	}
	w.text = quoted
}

func (w *writer) message(m protoreflect.Message) {
	switch t := m.Interface().(type) {
	case *timestamppb.Timestamp:
		w.quote(Instant(t))
		return
	case *durationpb.Duration:
		w.quote(Seconds(t))
		return
	}
	w.raw("{")
	fields := m.Descriptor().Fields()
	first := true
	for i := range fields.Len() {
		f := fields.Get(i)
		if f.HasPresence() && !m.Has(f) {
			continue // an absent message, or the other arms of a oneof
		}
		if !first {
			w.raw(",")
		}
		first = false
		w.quote(string(f.Name()))
		w.raw(":")
		w.field(f, m.Get(f))
	}
	w.raw("}")
}

func (w *writer) field(f protoreflect.FieldDescriptor, v protoreflect.Value) {
	switch {
	case f.IsMap():
		w.mapping(f, v.Map())
	case f.IsList():
		w.raw("[")
		for i := range v.List().Len() {
			if i > 0 {
				w.raw(",")
			}
			w.single(f, v.List().Get(i))
		}
		w.raw("]")
	default:
		w.single(f, v)
	}
}

func (w *writer) mapping(f protoreflect.FieldDescriptor, m protoreflect.Map) {
	var keys []protoreflect.MapKey
	m.Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
		keys = append(keys, k)
		return true
	})
	slices.SortFunc(keys, func(a, b protoreflect.MapKey) int { return cmp.Compare(a.String(), b.String()) })
	w.raw("{")
	for i, k := range keys {
		if i > 0 {
			w.raw(",")
		}
		w.quote(k.String())
		w.raw(":")
		w.single(f.MapValue(), m.Get(k))
	}
	w.raw("}")
}

func (w *writer) single(f protoreflect.FieldDescriptor, v protoreflect.Value) {
	switch f.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		w.message(v.Message())
	case protoreflect.EnumKind:
		w.quote(enumWord(f.Enum(), v.Enum()))
	case protoreflect.StringKind:
		w.quote(v.String())
	case protoreflect.BytesKind:
		w.quote(base64.StdEncoding.EncodeToString(v.Bytes()))
	case protoreflect.BoolKind:
		w.text = strconv.AppendBool(w.text, v.Bool())
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		number, err := json.Marshal(v.Float())
		if err != nil { // NaN and infinities have no JSON
			number = []byte("null")
		}
		w.raw(string(number))
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind, protoreflect.Fixed32Kind, protoreflect.Fixed64Kind:
		w.text = strconv.AppendUint(w.text, v.Uint(), 10)
	default: // the signed integers
		w.text = strconv.AppendInt(w.text, v.Int(), 10)
	}
}

// enumWord is an enum's value without the prefix that proto wants: ACTIVE, not CELL_STATE_ACTIVE. A
// number that this build does not know is shown as the number.
func enumWord(e protoreflect.EnumDescriptor, n protoreflect.EnumNumber) string {
	value := e.Values().ByNumber(n)
	if value == nil {
		return strconv.Itoa(int(n))
	}
	return strings.TrimPrefix(string(value.Name()), prefix(string(e.Name())))
}

// prefix is CELL_STATE_ for CellState.
func prefix(name string) string {
	var b strings.Builder
	for i, r := range name {
		if i > 0 && r >= 'A' && r <= 'Z' {
			b.WriteByte('_')
		}
		b.WriteRune(r)
	}
	return strings.ToUpper(b.String()) + "_"
}

// Word is an enum's value as people and scripts see it.
func Word(e protoreflect.Enum) string { return enumWord(e.Descriptor(), e.Number()) }

// Instant is RFC 3339 in UTC with milliseconds; "" where there is none.
func Instant(t *timestamppb.Timestamp) string {
	if t == nil {
		return ""
	}
	return t.AsTime().UTC().Format(instantForm)
}

// Seconds is a duration as "900s" or "0.25s"; "" where there is none.
func Seconds(d *durationpb.Duration) string {
	if d == nil {
		return ""
	}
	return strconv.FormatFloat(d.AsDuration().Seconds(), 'f', -1, 64) + "s"
}

const instantForm = "2006-01-02T15:04:05.000Z07:00"

// InstantOf is Instant for a time of Go; "" for the zero time.
func InstantOf(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(instantForm)
}
