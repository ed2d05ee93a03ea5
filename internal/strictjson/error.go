package strictjson

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// ErrInvalid is the sentinel behind every *Error of this package.
var ErrInvalid = errors.New("invalid JSON input")

// maxPointerBytes bounds what an error repeats of the input's names.
const maxPointerBytes = 128

// Error says where the input breaks which rule. Pointer is a JSON pointer (RFC
// 6901), "" for the input as a whole.
type Error struct {
	Pointer string
	Rule    string
}

// Error says pointer and rule; names in the pointer are quoted, so that it fits on
// a line of a log whatever they hold.
func (e *Error) Error() string {
	if e.Pointer == "" {
		return "body: " + e.Rule
	}
	return strings.Trim(strconv.Quote(e.Pointer), `"`) + ": " + e.Rule
}

// Unwrap makes errors.Is(err, ErrInvalid) hold.
func (e *Error) Unwrap() error { return ErrInvalid }

func refuse(pointer jsontext.Pointer, rule string) *Error {
	return &Error{Pointer: cut(string(pointer)), Rule: rule}
}

// cut shortens a pointer at a rune's border.
func cut(s string) string {
	if len(s) <= maxPointerBytes {
		return s
	}
	end := maxPointerBytes
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "…"
}

// syntaxError translates what the tokenizer found.
func syntaxError(err error) *Error {
	var syntactic *jsontext.SyntacticError
	if !errors.As(err, &syntactic) {
		return refuse("", "must be one JSON value")
	}
	return refuse(syntactic.JSONPointer, syntaxRule(syntactic.Err))
}

func syntaxRule(err error) string {
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName):
		return "must appear only once"
	case strings.Contains(err.Error(), "UTF-8"):
		return "must be valid UTF-8"
	default:
		return "must be valid JSON"
	}
}

// typeError translates what did not fit the target.
func typeError(err error) *Error {
	var semantic *json.SemanticError
	if !errors.As(err, &semantic) {
		return syntaxError(err)
	}
	if errors.Is(semantic.Err, json.ErrUnknownName) {
		return refuse(semantic.JSONPointer, "is not a known field")
	}
	return refuse(semantic.JSONPointer, typeRule(semantic.GoType))
}

func typeRule(t reflect.Type) string {
	if t == nil {
		return "has the wrong type"
	}
	switch t.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return fmt.Sprintf("must be a whole number of at most %d bits, written without point, exponent or quotes", t.Bits())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return fmt.Sprintf("must be a whole number from 0 of at most %d bits, written without point, exponent or quotes", t.Bits())
	case reflect.Float32, reflect.Float64:
		return "must be a number"
	case reflect.String:
		return "must be a text"
	case reflect.Bool:
		return "must be true or false"
	case reflect.Slice, reflect.Array:
		return "must be a list"
	case reflect.Struct, reflect.Map:
		return "must be an object"
	default:
		return "has the wrong type"
	}
}
