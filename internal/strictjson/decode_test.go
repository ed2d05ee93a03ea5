package strictjson

import (
	"bytes"
	stdjson "encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

// body has one field of every shape that our bodies have.
type body struct {
	UserID   string            `json:"user_id"`
	Quantity int32             `json:"quantity"`
	Offset   uint64            `json:"offset"`
	Paid     bool              `json:"paid"`
	Lines    []line            `json:"lines"`
	Inner    *line             `json:"inner"`
	Claims   map[string]string `json:"claims"`
}

type line struct {
	SKU string `json:"sku_id"`
}

const limit = 16 << 10

func decode(text string) (body, error) {
	var b body
	err := Decode(strings.NewReader(text), limit, &b)
	return b, err
}

func TestDecodeAccepts(t *testing.T) {
	t.Parallel()
	cases := []struct {
		text string
		want body
	}{
		{`{}`, body{}},
		{" {\n}\t\r\n", body{}},
		{`{"user_id":"用户 \u0041\n","quantity":-1,"offset":18446744073709551615,"paid":true}`, body{UserID: "用户 A\n", Quantity: -1, Offset: 1<<64 - 1, Paid: true}},
		{`{"quantity":2147483647}`, body{Quantity: 1<<31 - 1}},
		{`{"lines":[{"sku_id":"a"},{"sku_id":"b"}],"inner":{"sku_id":"c"}}`, body{Lines: []line{{"a"}, {"b"}}, Inner: &line{"c"}}},
		{`{"user_id":null,"quantity":null,"lines":null,"inner":null}`, body{}},
		{`{"claims":{"a":"1","b":"a"}}`, body{Claims: map[string]string{"a": "1", "b": "a"}}},
	}
	for _, c := range cases {
		if got, err := decode(c.text); err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s → %+v, %v; want %+v", c.text, got, err, c.want)
		}
	}
}

// TestDecodeRefuses is K42 and the part of K60 that a decoder can see.
func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	const whole32 = "must be a whole number of at most 32 bits, written without point, exponent or quotes"
	const once, known, valid, utf8rule = "must appear only once", "is not a known field", "must be valid JSON", "must be valid UTF-8"
	const after = "must be one JSON value with nothing after it"
	cases := []struct{ name, text, pointer, rule string }{
		{"duplicate", `{"user_id":"a","user_id":"b"}`, "/user_id", once},
		{"duplicate by escape", `{"user_id":"a","user\u005fid":"b"}`, "/user_id", once},
		{"duplicate deep down", `{"lines":[{"sku_id":"1","sku_id":"2"}]}`, "/lines/0/sku_id", once},
		{"duplicate in a map", `{"claims":{"a":"1","a":"2"}}`, "/claims/a", once},
		{"case variant", `{"user_id":"a","USER_ID":"b"}`, "/USER_ID", once + ", in whatever case"},
		{"case variant in a map", `{"claims":{"k":"1","` + "\u212a" + `":"2"}}`, "/claims/\u212a", once + ", in whatever case"},
		{"case variant alone", `{"User_ID":"a"}`, "/User_ID", known},
		{"unknown", `{"user_id":"a","admin":true}`, "/admin", known},
		{"unknown deep down", `{"inner":{"sku_id":"a","price":1}}`, "/inner/price", known},
		{"empty name", `{"":1}`, "/", known},
		{"text for a number", `{"quantity":"1"}`, "/quantity", whole32},
		{"point", `{"quantity":1.0}`, "/quantity", whole32},
		{"fraction", `{"quantity":1.5}`, "/quantity", whole32},
		{"exponent", `{"quantity":1e0}`, "/quantity", whole32},
		{"huge", `{"quantity":9e99}`, "/quantity", whole32},
		{"2^31", `{"quantity":2147483648}`, "/quantity", whole32},
		{"2^63", `{"quantity":9223372036854775808}`, "/quantity", whole32},
		{"list for a number", `{"quantity":[1]}`, "/quantity", whole32},
		{"bool for a number", `{"quantity":true}`, "/quantity", whole32},
		{"negative unsigned", `{"offset":-1}`, "/offset", "must be a whole number from 0 of at most 64 bits, written without point, exponent or quotes"},
		{"number for a text", `{"user_id":1}`, "/user_id", "must be a text"},
		{"text for a bool", `{"paid":"true"}`, "/paid", "must be true or false"},
		{"object for a list", `{"lines":{}}`, "/lines", "must be a list"},
		{"list for an object", `{"inner":[]}`, "/inner", "must be an object"},
		{"list for the body", `[]`, "", "must be an object"},
		{"text for the body", `"x"`, "", "must be an object"},
		{"null for the body", `null`, "", "must not be null"},
		{"plus sign", `{"quantity":+1}`, "/quantity", valid},
		{"leading zero", `{"quantity":01}`, "", valid},
		{"hexadecimal", `{"quantity":0x1}`, "", valid},
		{"not a number", `{"quantity":NaN}`, "/quantity", valid},
		{"comment", `{/*x*/}`, "", valid},
		{"trailing comma", `{"quantity":1,}`, "", valid},
		{"single quotes", `{'quantity':1}`, "", valid},
		{"cut", `{"user_id":"a"`, "", valid},
		{"raw line break in a text", "{\"user_id\":\"a\nb\"}", "/user_id", valid},
		{"empty", ``, "", "must be one JSON value"},
		{"white space", "  \n", "", "must be one JSON value"},
		{"second value", `{}{}`, "", after},
		{"garbage after", `{} x`, "", after},
		{"nul after", "{}\x00", "", after},
		{"closing brace after", `{}}`, "", after},
		{"byte order mark", "\ufeff{}", "", "must not begin with a byte order mark"},
		{"UTF-16", "{\x00}\x00", "", valid},
		{"broken UTF-8", "{\"user_id\":\"a\xff\"}", "/user_id", utf8rule},
		{"lone surrogate", `{"user_id":"\ud800"}`, "/user_id", valid},
		{"NUL", `{"user_id":"a\u0000"}`, "/user_id", "must not contain the character U+0000"},
		{"NUL in a name", `{"a\u0000":1}`, "/a\x00", "must not contain the character U+0000"},
		{"deep lists", strings.Repeat("[", 17) + strings.Repeat("]", 17), strings.Repeat("/0", 16), "must not nest deeper than 16"},
		{"deep objects", strings.Repeat(`{"a":`, 2000), "/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a", "must not nest deeper than 16"},
		{"too long", `{"user_id":"` + strings.Repeat("a", limit) + `"}`, "", "must be at most 16384 bytes"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := decode(c.text)
			var refusal *Error
			if !errors.As(err, &refusal) || !errors.Is(err, ErrInvalid) {
				t.Fatalf("%.80q: %v, want an *Error", c.text, err)
			}
			if refusal.Pointer != c.pointer || refusal.Rule != c.rule {
				t.Fatalf("%.80q:\n got %q %q\nwant %q %q", c.text, refusal.Pointer, refusal.Rule, c.pointer, c.rule)
			}
		})
	}
}

func TestTenMegabytesAreNotReadToTheEnd(t *testing.T) {
	t.Parallel()
	endless := &counter{}
	var b body
	if err := Decode(endless, limit, &b); !errors.Is(err, ErrInvalid) {
		t.Fatalf("error = %v", err)
	}
	if endless.read > 4*limit {
		t.Fatalf("%d bytes read for a limit of %d", endless.read, limit)
	}
}

// counter is an endless reader that counts.
type counter struct{ read int }

func (c *counter) Read(p []byte) (int, error) { c.read += len(p); return len(p), nil }

func TestBodyOfExactlyTheLimitIsRead(t *testing.T) {
	t.Parallel()
	text := `{"user_id":"` + strings.Repeat("a", limit-14) + `"}`
	if _, err := decode(text); len(text) != limit || err != nil {
		t.Fatalf("%d bytes: %v", len(text), err)
	}
}

func TestReadErrorIsNotTheClientsFault(t *testing.T) {
	t.Parallel()
	broken := errors.New("connection reset")
	var b body
	err := Decode(io.MultiReader(strings.NewReader(`{"user`), iotest.ErrReader(broken)), limit, &b)
	if !errors.Is(err, broken) || errors.Is(err, ErrInvalid) {
		t.Fatalf("error = %v", err)
	}
}

// TestErrorsFitOnALine is K82: names are the client's, and end in problems and logs.
func TestErrorsFitOnALine(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a\\n{\\\"level\\\":\\\"error\\\"}", "\\r\\u001b[31m", "\\u0085\\u2028", strings.Repeat("用", 3000)} {
		_, err := decode(`{"` + name + `":1}`)
		if err == nil {
			t.Fatalf("name %s was accepted", name)
		}
		if text := err.Error(); len(text) > 800 || strings.ContainsAny(text, "\n\r\x1b\u0085\u2028") {
			t.Errorf("error of %d bytes: %q", len(text), text)
		}
	}
	_, err := decode(`{"user_id":7777777,"lines":8888888}`)
	if err == nil || strings.Contains(err.Error(), "7777777") {
		t.Errorf("the error echoes the value: %v", err)
	}
}

// TestAgreesWithTheLenientReader: what is accepted means the same to encoding/json,
// which is what stands behind us in other people's programs.
func TestAgreesWithTheLenientReader(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := body{
			UserID:   rapid.String().Draw(t, "user"),
			Quantity: rapid.Int32().Draw(t, "quantity"),
			Offset:   rapid.Uint64().Draw(t, "offset"),
			Paid:     rapid.Bool().Draw(t, "paid"),
		}
		text, err := stdjson.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := decode(string(text))
		if strings.ContainsRune(want.UserID, 0) {
			if err == nil {
				t.Fatal("U+0000 was accepted")
			}
			return
		}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%s → %+v, %v", text, got, err)
		}
	})
}

func FuzzUnmarshal(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"user_id":"a","USER_ID":"b"}`, `{"quantity":1e0}`, `{"lines":[{"sku_id":"a"}]}`, `{"claims":{"a":"1"}}`, `[[[[`, `{"a\u0000":1}`, "\ufeff{}",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var strict, lenient body
		if err := Unmarshal(text, &strict); err != nil {
			if !errors.Is(err, ErrInvalid) {
				t.Fatalf("%q: %v is no *Error", text, err)
			}
			return
		}
		if err := stdjson.Unmarshal(text, &lenient); err != nil {
			t.Fatalf("%q is accepted but is no JSON: %v", text, err)
		}
		if !reflect.DeepEqual(normal(strict), normal(lenient)) {
			t.Fatalf("%q means %+v here and %+v elsewhere", text, strict, lenient)
		}
		if bytes.ContainsRune(text, 0) {
			t.Fatalf("%q is accepted with a NUL", text)
		}
	})
}

// normal takes out the difference between an empty and an absent list or map.
func normal(b body) body {
	if len(b.Lines) == 0 {
		b.Lines = nil
	}
	if len(b.Claims) == 0 {
		b.Claims = nil
	}
	return b
}

func BenchmarkUnmarshal(b *testing.B) {
	text := []byte(`{"user_id":"alice","quantity":1,"lines":[{"sku_id":"phone-x"}]}`)
	b.ReportAllocs()
	for b.Loop() {
		var v body
		if err := Unmarshal(text, &v); err != nil {
			b.Fatal(err)
		}
	}
}
