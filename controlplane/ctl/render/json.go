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

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// JSON is a message as scripts read it, indented by two spaces, with a line break at the end.
func JSON(m proto.Message) []byte {
	var compact, out bytes.Buffer
	(&writer{&compact}).message(m.ProtoReflect())
	_ = json.Indent(&out, compact.Bytes(), "", "  ") // what was just written is valid
	out.WriteByte('\n')
	return out.Bytes()
}

// writer appends JSON text.
type writer struct{ *bytes.Buffer }

func (w *writer) message(m protoreflect.Message) {
	switch t := m.Interface().(type) {
	case *timestamppb.Timestamp:
		w.text(Instant(t))
		return
	case *durationpb.Duration:
		w.text(Seconds(t))
		return
	}
	w.WriteByte('{')
	fields := m.Descriptor().Fields()
	first := true
	for i := range fields.Len() {
		f := fields.Get(i)
		if f.HasPresence() && !m.Has(f) {
			continue // an absent message, or the other arms of a oneof
		}
		if !first {
			w.WriteByte(',')
		}
		first = false
		w.text(string(f.Name()))
		w.WriteByte(':')
		w.field(f, m.Get(f))
	}
	w.WriteByte('}')
}

func (w *writer) field(f protoreflect.FieldDescriptor, v protoreflect.Value) {
	switch {
	case f.IsMap():
		w.mapping(f, v.Map())
	case f.IsList():
		w.WriteByte('[')
		for i := range v.List().Len() {
			if i > 0 {
				w.WriteByte(',')
			}
			w.single(f, v.List().Get(i))
		}
		w.WriteByte(']')
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
	w.WriteByte('{')
	for i, k := range keys {
		if i > 0 {
			w.WriteByte(',')
		}
		w.text(k.String())
		w.WriteByte(':')
		w.single(f.MapValue(), m.Get(k))
	}
	w.WriteByte('}')
}

func (w *writer) single(f protoreflect.FieldDescriptor, v protoreflect.Value) {
	switch f.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		w.message(v.Message())
	case protoreflect.EnumKind:
		w.text(enumWord(f.Enum(), v.Enum()))
	case protoreflect.StringKind:
		w.text(v.String())
	case protoreflect.BytesKind:
		w.text(base64.StdEncoding.EncodeToString(v.Bytes()))
	case protoreflect.BoolKind:
		w.WriteString(strconv.FormatBool(v.Bool()))
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		number, err := json.Marshal(v.Float())
		if err != nil { // NaN and infinities have no JSON
			number = []byte("null")
		}
		w.Write(number)
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind, protoreflect.Fixed32Kind, protoreflect.Fixed64Kind:
		w.WriteString(strconv.FormatUint(v.Uint(), 10))
	default: // the signed integers
		w.WriteString(strconv.FormatInt(v.Int(), 10))
	}
}

func (w *writer) text(s string) {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	_ = e.Encode(s)         // a string always encodes
	w.Truncate(w.Len() - 1) // Encode ends with a line break
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
