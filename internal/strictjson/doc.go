// Package strictjson reads JSON that comes from outside in one way only. A body
// that two readers could understand differently is refused, so that nothing is
// ever checked on one value and used with another (K42).
//
// # Promise
//
// Decode refuses, with an *Error that gives a JSON pointer and a rule:
//
//   - more bytes than the limit, a byte order mark, invalid UTF-8, anything that is
//     not exactly one JSON value, anything after it;
//   - a name that appears twice in an object, or twice but for its case; a name
//     that the target does not have, letter for letter;
//   - a number that is not written as an integer where an integer belongs (1.0, 1e0,
//     "1", 9e99), or that the target cannot hold; any other wrong type;
//   - the character U+0000 in a text, which no store of ours can keep;
//   - nesting deeper than 16.
//
// A null leaves its field as if it were absent; whether a field may be absent is
// the caller's rule, as is every range. When Decode fails, out must not be used.
//
// An *Error echoes names from the input in its pointer, cut to 128 bytes; it never
// echoes a value.
//
// # Neighbours
//
// The edge reads bodies and tokens' claims with it, cellctl reads answers of a
// running platform. It knows no domain rule. It stands on go-json-experiment/json.
package strictjson
