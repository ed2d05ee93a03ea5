package config

import (
	"encoding"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"time"
)

// EnvPrefix begins the name of every environment variable of ours.
const EnvPrefix = "CELLQUOTA_"

// field is one key and the place its value goes to.
type field struct {
	key      string
	index    []int
	typ      reflect.Type
	fallback *string // nil: none
	doc      string
	min, max string
	oneof    []string
	required bool
	secret   bool
	devOnly  bool
}

func (f field) env() string {
	return EnvPrefix + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(f.key))
}

func (f field) flag() string { return flagName(f.key) }

// flagName is the one spelling under which a flag is kept.
func flagName(s string) string { return strings.NewReplacer(".", "-", "_", "-").Replace(s) }

var keyGrammar = regexp.MustCompile(`^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*$`)

// schema lists the keys of a struct type. A struct that breaks the rules of the
// tags is a bug in the program and panics, in the first test that loads it.
func schema(t reflect.Type) []field {
	if t.Kind() != reflect.Struct {
		panic(fmt.Sprintf("config: %v is not a struct", t))
	}
	fields := collect(t, "", nil)
	spellings := map[string]string{}
	for _, f := range fields {
		for _, spelling := range []string{f.env(), "--" + f.flag()} {
			if other, taken := spellings[spelling]; taken {
				panic(fmt.Sprintf("config: %v: keys %s and %s are both spelt %s", t, other, f.key, spelling))
			}
			spellings[spelling] = f.key
		}
	}
	return fields
}

func collect(t reflect.Type, prefix string, index []int) []field {
	var out []field
	for i := range t.NumField() {
		sf := t.Field(i)
		at := append(append([]int{}, index...), i)
		key, tagged := sf.Tag.Lookup("config")
		switch {
		case key == "-" || (!sf.IsExported() && !tagged):
			continue
		case isGroup(sf.Type):
			out = append(out, collect(sf.Type, join(prefix, key), at)...)
		case !tagged:
			panic(fmt.Sprintf(`config: %v.%s has no config tag; write config:"-" if it is no setting`, t, sf.Name))
		default:
			out = append(out, newField(t, sf, join(prefix, key), at))
		}
	}
	return out
}

// isGroup tells a struct of settings from a struct that is one value.
func isGroup(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && !reflect.PointerTo(t).Implements(textType)
}

var (
	textType     = reflect.TypeFor[encoding.TextUnmarshaler]()
	durationType = reflect.TypeFor[time.Duration]()
)

func join(prefix, key string) string {
	if prefix == "" || key == "" {
		return prefix + key
	}
	return prefix + "." + key
}

func newField(t reflect.Type, sf reflect.StructField, key string, index []int) field {
	if !keyGrammar.MatchString(key) || !sf.IsExported() {
		panic(fmt.Sprintf("config: %v.%s: key %q must be lower_snake words joined by dots, on an exported field", t, sf.Name, key))
	}
	f := field{
		key: key, index: index, typ: sf.Type, doc: sf.Tag.Get("doc"),
		min: sf.Tag.Get("min"), max: sf.Tag.Get("max"),
		required: sf.Tag.Get("required") == "true",
		secret:   sf.Tag.Get("secret") == "true",
		devOnly:  sf.Tag.Get("dev") == "true",
	}
	if fallback, ok := sf.Tag.Lookup("default"); ok {
		f.fallback = &fallback
	}
	if words := sf.Tag.Get("oneof"); words != "" {
		f.oneof = splitList(words)
	}
	f.checkTags(t)
	return f
}

// checkTags decodes the default, which proves the type, and the bounds.
func (f field) checkTags(t reflect.Type) {
	probe := reflect.New(f.typ).Elem()
	if !supported(f.typ) {
		panic(fmt.Sprintf("config: %v: %s: type %v is not supported", t, f.key, f.typ))
	}
	if f.fallback != nil {
		if rule := f.decode(probe, *f.fallback); rule != "" {
			panic(fmt.Sprintf("config: %v: %s: default: %s", t, f.key, rule))
		}
	}
	for _, b := range []string{f.min, f.max} {
		if _, err := f.limit(b); err != nil {
			panic(fmt.Sprintf("config: %v: %s: bound %q: %v", t, f.key, b, err))
		}
	}
}

// splitList cuts at commas and trims; "" is the empty list.
func splitList(s string) []string {
	if strings.TrimSpace(s) == "" {
		return []string{}
	}
	parts := strings.Split(s, ",")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	return parts
}
