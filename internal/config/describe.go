package config

import (
	"encoding"
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
)

// Key describes one setting, for documentation and for Options.Known.
type Key struct {
	Name    string // redis.addrs
	Env     string // CELLQUOTA_REDIS_ADDRS
	Flag    string // --redis-addrs
	Type    string // duration, list of string, …
	Default string
	Doc     string
	Rule    string // "required; at least 1s"
	Secret  bool
}

// Describe lists the keys of T in the order of its fields.
func Describe[T any]() []Key {
	var out []Key
	for _, f := range schema(reflect.TypeFor[T]()) {
		k := Key{
			Name: f.key, Env: f.env(), Flag: "--" + f.flag(), Type: typeName(f.typ),
			Doc: f.doc, Rule: strings.Trim(f.rule(), "()"), Secret: f.secret,
		}
		if f.fallback != nil {
			k.Default = *f.fallback
		}
		out = append(out, k)
	}
	return out
}

// Keys returns the names of T's keys.
func Keys[T any]() []string {
	var out []string
	for _, f := range schema(reflect.TypeFor[T]()) {
		out = append(out, f.key)
	}
	return out
}

// rule says in brackets what the tags ask for; "" if nothing.
func (f field) rule() string {
	var parts []string
	if f.required {
		parts = append(parts, "required")
	}
	if f.min != "" {
		parts = append(parts, "at least "+f.min)
	}
	if f.max != "" {
		parts = append(parts, "at most "+f.max)
	}
	if len(f.oneof) > 0 {
		parts = append(parts, "one of "+strings.Join(f.oneof, ", "))
	}
	if f.devOnly {
		parts = append(parts, "dev only")
	}
	if len(parts) == 0 {
		return ""
	}
	return "(" + strings.Join(parts, "; ") + ")"
}

func typeName(t reflect.Type) string {
	switch {
	case t == durationType:
		return "duration"
	case reflect.PointerTo(t).Implements(textType):
		return "string"
	case t.Kind() == reflect.Slice:
		return "list of " + typeName(t.Elem())
	case t.Kind() == reflect.Float64:
		return "number"
	case t.Kind() == reflect.String, t.Kind() == reflect.Bool:
		return t.Kind().String()
	default:
		return "integer"
	}
}

// Mask stands where a secret is.
const Mask = "********"

// Write prints v, a Config that Load filled, as the YAML that Load reads, with
// secrets masked.
func Write[T any](w io.Writer, v T) error {
	return write(w, reflect.ValueOf(&v).Elem(), schema(reflect.TypeFor[T]()))
}

func write(w io.Writer, v reflect.Value, fields []field) error {
	var root yaml.MapSlice
	for _, f := range fields {
		root = insert(root, strings.Split(f.key, "."), f.printable(v.FieldByIndex(f.index)))
	}
	out, err := yaml.MarshalWithOptions(root, yaml.IndentSequence(true))
	if err != nil {
		return fmt.Errorf("print-config: %w", err)
	}
	_, err = w.Write(out)
	return err
}

func insert(into yaml.MapSlice, path []string, value any) yaml.MapSlice {
	if len(path) == 1 {
		return append(into, yaml.MapItem{Key: path[0], Value: value})
	}
	for i := range into {
		if inner, ok := into[i].Value.(yaml.MapSlice); ok && into[i].Key == path[0] {
			into[i].Value = insert(inner, path[1:], value)
			return into
		}
	}
	return append(into, yaml.MapItem{Key: path[0], Value: insert(nil, path[1:], value)})
}

func (f field) printable(v reflect.Value) any {
	if f.secret {
		if empty(v) {
			return ""
		}
		return Mask
	}
	return plain(v)
}

func plain(v reflect.Value) any {
	if v.Kind() == reflect.Slice && !reflect.PointerTo(v.Type()).Implements(textType) {
		list := make([]any, 0, v.Len())
		for i := range v.Len() {
			list = append(list, plain(v.Index(i)))
		}
		return list
	}
	switch x := v.Interface().(type) {
	case time.Duration:
		return x.String()
	case encoding.TextMarshaler:
		if text, err := x.MarshalText(); err == nil {
			return string(text)
		}
		return fmt.Sprint(x)
	}
	switch {
	case v.Kind() == reflect.String:
		return v.String()
	case v.Kind() == reflect.Bool:
		return v.Bool()
	case v.CanUint():
		return v.Uint()
	case v.CanFloat():
		return v.Float()
	default:
		return v.Int()
	}
}
