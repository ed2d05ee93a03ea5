package strictjson

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// maxDepth is how deep objects and lists may nest; our deepest body has 3.
const maxDepth = 16

// Decode reads one JSON value of at most limit bytes from r into out, a pointer.
// What the package comment lists is refused with an *Error; an error of r itself
// comes back wrapped and is no *Error.
func Decode(r io.Reader, limit int64, out any) error {
	text, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return fmt.Errorf("read the body: %w", err)
	}
	if int64(len(text)) > limit {
		return refuse("", fmt.Sprintf("must be at most %d bytes", limit))
	}
	return Unmarshal(text, out)
}

// Unmarshal is Decode for bytes that are already here and already bounded.
func Unmarshal(text []byte, out any) error {
	if bytes.HasPrefix(text, []byte("\ufeff")) {
		return refuse("", "must not begin with a byte order mark")
	}
	if err := scan(text); err != nil {
		return err
	}
	if err := json.Unmarshal(text, out, json.RejectUnknownMembers(true)); err != nil {
		return typeError(err)
	}
	return nil
}

// scan walks over every token once and checks what does not depend on the target:
// syntax, UTF-8, names, depth, U+0000, one value and nothing after it.
func scan(text []byte) error {
	in := jsontext.NewDecoder(bytes.NewReader(text))
	names := nameStack{}
	for values := 0; ; {
		token, err := in.ReadToken()
		switch {
		case errors.Is(err, io.EOF) && values == 1:
			return nil
		case values == 1:
			return refuse("", "must be one JSON value with nothing after it")
		case err != nil:
			return syntaxError(err)
		case in.StackDepth() > maxDepth:
			return refuse(in.StackPointer(), fmt.Sprintf("must not nest deeper than %d", maxDepth))
		}
		if rule := names.check(in, token); rule != "" {
			return refuse(in.StackPointer(), rule)
		}
		if in.StackDepth() == 0 {
			if token.Kind() == jsontext.KindNull {
				return refuse("", "must not be null")
			}
			values++
		}
	}
}

// nameStack holds, for each object that is open, the names seen in it so far,
// folded. Its index is the depth.
type nameStack [maxDepth + 1]map[string]bool

// check looks at the token that in has just read and returns the rule it breaks.
func (s *nameStack) check(in *jsontext.Decoder, token jsontext.Token) string {
	if token.Kind() == jsontext.KindBeginObject {
		s[in.StackDepth()] = map[string]bool{}
	}
	if token.Kind() != jsontext.KindString {
		return ""
	}
	text := token.String()
	if strings.ContainsRune(text, 0) {
		return "must not contain the character U+0000"
	}
	if kind, length := in.StackIndex(in.StackDepth()); kind != jsontext.KindBeginObject || length%2 == 0 {
		return "" // a value; after a name the length is odd
	}
	folded, seen := fold(text), s[in.StackDepth()]
	if seen[folded] {
		return "must appear only once, in whatever case"
	}
	seen[folded] = true
	return ""
}

// fold makes names equal that a reader without regard to case would take for the
// same. Upper before lower catches the letters that only one of them folds (ſ).
func fold(name string) string { return strings.ToLower(strings.ToUpper(name)) }
