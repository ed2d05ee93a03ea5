package campaignfile

import (
	"fmt"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/allocator/quantity"
)

// The readers of single values. Each gives the fallback where the key is absent
// and notes a fault where the value is not exactly what it has to be.

// scalar gives a scalar's text as it was written, and whether it was quoted.
func (f *file) scalar(path string, n ast.Node) (text string, quoted, ok bool) {
	switch v := n.(type) {
	case *ast.StringNode:
		kind := v.GetToken().Type
		return v.Value, kind == token.SingleQuoteType || kind == token.DoubleQuoteType, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, false, true
	case *ast.LiteralNode:
		return v.Value.Value, true, true
	}
	f.fault(path, n.GetToken().Position, "must be a single value")
	return "", false, false
}

func (o *object) text(key, fallback string) string {
	n := o.node(key)
	if n == nil {
		return fallback
	}
	text, quoted, ok := o.f.scalar(o.at(key), n)
	if !ok {
		return fallback
	}
	if _, plain := n.(*ast.StringNode); !plain && !quoted {
		if _, literal := n.(*ast.LiteralNode); !literal && !numberIsText(n) {
			o.refuse(key, "must be text: put it in quotes")
			return fallback
		}
	}
	return text
}

// numberIsText lets an id such as 42 stand without quotes.
func numberIsText(n ast.Node) bool {
	_, isInt := n.(*ast.IntegerNode)
	return isInt
}

func (o *object) refuse(key, rule string) {
	o.f.fault(o.at(key), o.f.lines[o.at(key)], rule)
}

// number gives the digits of an unquoted value.
func (o *object) number(key string) (digits string, ok bool) {
	n := o.node(key)
	if n == nil {
		return "", false
	}
	text, quoted, ok := o.f.scalar(o.at(key), n)
	if !ok {
		return "", false
	}
	if quoted {
		o.refuse(key, "must be a number, not text in quotes")
		return "", false
	}
	return text, true
}

// units reads 0 to 1,000,000,000 in decimal digits.
func (o *object) units(key string) quantity.Quantity {
	digits, ok := o.number(key)
	if !ok {
		return quantity.Quantity{}
	}
	return o.f.units(o.at(key), digits)
}

func (f *file) units(path, digits string) quantity.Quantity {
	q, err := quantity.Parse(digits)
	if err != nil {
		f.fault(path, f.position(path), fmt.Sprintf("must be a whole number of units from 0 to 1000000000 in decimal digits, not %.24s", digits))
	}
	return q
}

// count reads a whole number with the bounds of an int32.
func (o *object) count(key string, fallback int32) int32 {
	digits, ok := o.number(key)
	if !ok {
		return fallback
	}
	q, err := quantity.Parse(digits)
	if err != nil {
		o.refuse(key, fmt.Sprintf("must be a whole number from 0 to 1000000000 in decimal digits, not %.24s", digits))
		return fallback
	}
	return q.Int32()
}

// instant reads RFC 3339 with its offset.
func (o *object) instant(key string) time.Time {
	text := o.text(key, "")
	if text == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		rule := "must be an instant such as 2026-11-11T00:00:00+08:00"
		if _, err := time.Parse("2006-01-02T15:04:05.999999999", text); err == nil {
			rule = "must say its offset: 2026-11-11T00:00:00+08:00, or Z"
		}
		o.refuse(key, rule)
		return time.Time{}
	}
	return t.UTC()
}

// span reads a duration with its unit.
func (o *object) span(key string, fallback time.Duration) time.Duration {
	text := o.text(key, "")
	if text == "" {
		return fallback
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		o.refuse(key, "must be a duration with its unit, such as 15m")
		return fallback
	}
	return d
}

// permille reads "5%" or "2.5%" in thousandths.
func (o *object) permille(key, fallback string) int32 {
	text := o.text(key, fallback)
	p, err := allocator.ParsePercent(o.at(key), text)
	thousandths := p.Of(quantity.Must(1_000))
	if err != nil || p.Of(quantity.Must(1_000_000)).Int64() != thousandths.Int64()*1_000 {
		o.refuse(key, `must be a percentage from "0%" to "100%" with at most one decimal`)
		return 0
	}
	return thousandths.Int32()
}

// enum reads one word of a list.
func enum[T interface {
	~uint8
	String() string
}](o *object, key string, all []T, fallback T,
) T {
	text := o.text(key, "")
	if text == "" {
		return fallback
	}
	var words []string
	for _, v := range all {
		if v.String() == text {
			return v
		}
		words = append(words, v.String())
	}
	o.refuse(key, "must be "+strings.Join(words, " or "))
	return fallback
}

// texts reads a list of single values.
func (o *object) texts(key string) []string {
	var out []string
	for i, n := range o.list(key) {
		path := fmt.Sprintf("%s[%d]", o.at(key), i)
		if text, _, ok := o.f.scalar(path, n); ok {
			out = append(out, text)
		}
	}
	return out
}

// plain gives any value as Go's own types, for what is opaque to us.
func plain(n ast.Node) (any, error) {
	var out any
	err := yaml.NodeToValue(n, &out)
	return out, err
}

// flag reads true or false.
func (o *object) flag(key string, fallback bool) bool {
	n := o.node(key)
	if n == nil {
		return fallback
	}
	v, ok := n.(*ast.BoolNode)
	if !ok {
		o.refuse(key, "must be true or false")
		return fallback
	}
	return v.Value
}

// noSecrets refuses keys that would hold a secret, with the one that names its file.
func (o *object) noSecrets(keys ...string) {
	for _, key := range keys {
		if o.has(key) {
			o.asked[key] = true
			o.refuse(key, "is a secret and may not stand here: write it into a file and name that as "+key+"_file")
		}
	}
}
