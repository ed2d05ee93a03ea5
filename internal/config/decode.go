package config

import (
	"encoding"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

func supported(t reflect.Type) bool {
	if reflect.PointerTo(t).Implements(textType) || t == durationType {
		return true
	}
	switch t.Kind() {
	case reflect.String, reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Float64:
		return true
	case reflect.Slice:
		return t.Elem().Kind() != reflect.Slice && supported(t.Elem())
	default:
		return false
	}
}

// decode puts raw, a string of a flag, variable or default or a value of YAML,
// into dst and returns the rule that it breaks, or "".
func (f field) decode(dst reflect.Value, raw any) string {
	rule := assign(dst, raw)
	if rule == "" {
		rule = f.check(dst)
	}
	if rule == "" || f.secret {
		return rule
	}
	return fmt.Sprintf("%s, not %s", rule, show(raw))
}

// show renders a refused value, cut to what fits on a line.
func show(raw any) string {
	s := fmt.Sprintf("%v", raw)
	if text, ok := raw.(string); ok {
		s = strconv.Quote(text)
	}
	if len(s) > 80 {
		s = s[:80] + "…"
	}
	return s
}

func assign(dst reflect.Value, raw any) string {
	if raw == nil {
		return "must have a value; leave the key out for its default"
	}
	t := dst.Type()
	switch {
	case reflect.PointerTo(t).Implements(textType):
		return assignText(dst, raw)
	case t == durationType:
		return assignDuration(dst, raw)
	}
	switch t.Kind() {
	case reflect.Slice:
		return assignList(dst, raw)
	case reflect.String:
		s, ok := raw.(string)
		dst.SetString(s)
		return unless(ok, "must be a string (quote it)")
	case reflect.Bool:
		return assignBool(dst, raw)
	case reflect.Float64:
		return assignFloat(dst, raw)
	default:
		return assignInt(dst, raw)
	}
}

func unless(ok bool, rule string) string {
	if ok {
		return ""
	}
	return rule
}

func assignText(dst reflect.Value, raw any) string {
	s, ok := raw.(string)
	if !ok {
		return "must be a string (quote it)"
	}
	if err := dst.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(s)); err != nil { //nolint:forcetypeassert // checked by the caller
		return "must be valid: " + err.Error()
	}
	return ""
}

func assignDuration(dst reflect.Value, raw any) string {
	s, ok := raw.(string)
	d, err := time.ParseDuration(s)
	if ok && err == nil {
		dst.SetInt(int64(d))
		return ""
	}
	return "must be a duration with its unit, such as 500ms or 5s"
}

func assignBool(dst reflect.Value, raw any) string {
	if b, ok := raw.(bool); ok {
		dst.SetBool(b)
		return ""
	}
	switch raw {
	case "true":
		dst.SetBool(true)
	case "false":
		dst.SetBool(false)
	default:
		return "must be true or false"
	}
	return ""
}

func assignFloat(dst reflect.Value, raw any) string {
	f, err := strconv.ParseFloat(fmt.Sprint(raw), 64)
	if _, isBool := raw.(bool); err != nil || isBool || math.IsNaN(f) || math.IsInf(f, 0) {
		return "must be a number"
	}
	dst.SetFloat(f)
	return ""
}

func assignInt(dst reflect.Value, raw any) string {
	switch raw.(type) {
	case string, int, int64, uint64:
	default:
		return "must be a whole number"
	}
	text, bits := fmt.Sprint(raw), dst.Type().Bits()
	if dst.CanUint() {
		n, err := strconv.ParseUint(text, 10, bits)
		dst.SetUint(n)
		return unless(err == nil, fmt.Sprintf("must be a whole number from 0 to %d", uint64(math.MaxUint64)>>(64-bits)))
	}
	n, err := strconv.ParseInt(text, 10, bits)
	dst.SetInt(n)
	return unless(err == nil, fmt.Sprintf("must be a whole number of at most %d bits", bits))
}

func assignList(dst reflect.Value, raw any) string {
	var items []any
	switch list := raw.(type) {
	case string:
		for _, item := range splitList(list) {
			items = append(items, item)
		}
	case []any:
		items = list
	default:
		return "must be a list"
	}
	out := reflect.MakeSlice(dst.Type(), len(items), len(items))
	for i, item := range items {
		if rule := assign(out.Index(i), item); rule != "" {
			return fmt.Sprintf("element %d %s", i+1, rule)
		}
		if item == "" {
			return fmt.Sprintf("element %d must not be empty", i+1)
		}
	}
	dst.Set(out)
	return ""
}

// check returns the rule of the tags that the decoded value breaks, or "".
func (f field) check(v reflect.Value) string {
	if rule := f.checkWords(v); rule != "" {
		return rule
	}
	size, what := measure(v)
	if low, err := f.limit(f.min); err == nil && f.min != "" && size < low {
		return fmt.Sprintf("%s must be at least %s", what, f.min)
	}
	if high, err := f.limit(f.max); err == nil && f.max != "" && size > high {
		return fmt.Sprintf("%s must be at most %s", what, f.max)
	}
	return ""
}

func (f field) checkWords(v reflect.Value) string {
	if len(f.oneof) == 0 {
		return ""
	}
	words := []string{fmt.Sprint(v.Interface())}
	if v.Kind() == reflect.Slice {
		words = words[:0]
		for i := range v.Len() {
			words = append(words, fmt.Sprint(v.Index(i).Interface()))
		}
	}
	for _, w := range words {
		if !slices.Contains(f.oneof, w) {
			return "must be one of " + strings.Join(f.oneof, ", ")
		}
	}
	return ""
}

// measure returns what min and max apply to, and what to call it.
func measure(v reflect.Value) (size float64, what string) {
	switch {
	case v.Kind() == reflect.Slice:
		return float64(v.Len()), "the number of elements"
	case v.Kind() == reflect.String:
		return float64(v.Len()), "the length"
	case v.CanInt():
		return float64(v.Int()), "it"
	case v.CanUint():
		return float64(v.Uint()), "it"
	case v.CanFloat():
		return v.Float(), "it"
	default:
		return 0, "it"
	}
}

// limit reads a bound in the unit of the field's type; 0 for none.
func (f field) limit(bound string) (float64, error) {
	if bound == "" {
		return 0, nil
	}
	if f.typ == durationType {
		d, err := time.ParseDuration(bound)
		return float64(d), err
	}
	return strconv.ParseFloat(bound, 64)
}
