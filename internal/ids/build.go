package ids

import (
	"cmp"
	"strconv"
	"strings"
)

// MaxBuildPart is the largest fence version or count of a build: 2^53 − 1, the
// largest integer that a Redis script can hold exactly.
const MaxBuildPart = 1<<53 - 1

// Build names one build of a cell's mirror: the fence version it was minted
// under and a count that the shard mints under that version. The zero Build is
// older than every real one and means "none".
type Build struct {
	Fence int64 // fence version of the cell, from 1
	Count int64 // from 1 under each fence version
}

// String is the build's text form "FENCE.COUNT", as it stands in ids, headers and
// the mirror's meta.
func (b Build) String() string {
	return string(b.AppendText(make([]byte, 0, 24)))
}

// AppendText appends the text form to dst without an allocation of its own.
func (b Build) AppendText(dst []byte) []byte {
	dst = strconv.AppendInt(dst, b.Fence, 10)
	dst = append(dst, '.')
	return strconv.AppendInt(dst, b.Count, 10)
}

// Compare orders builds: first by fence version, then by count. It is −1 when b
// is older than other, 0 when they are the same, +1 when b is newer.
func (b Build) Compare(other Build) int {
	return cmp.Or(cmp.Compare(b.Fence, other.Fence), cmp.Compare(b.Count, other.Count))
}

// IsZero reports whether b is the zero Build, "none".
func (b Build) IsZero() bool { return b == Build{} }

// ParseBuild reads exactly what String writes for parts from 0 to MaxBuildPart:
// decimal, no sign, no leading zero. Anything else is an *Error on build_id.
func ParseBuild(s string) (Build, error) {
	fence, count, found := strings.Cut(s, ".")
	if !found {
		return Build{}, errBuild()
	}
	f, okF := parsePart(fence)
	c, okC := parsePart(count)
	if !okF || !okC {
		return Build{}, errBuild()
	}
	return Build{Fence: f, Count: c}, nil
}

func errBuild() error {
	return &Error{Field: "build_id", Rule: "must be FENCE.COUNT, two whole numbers from 0 to 9007199254740991 without leading zeros"}
}

// parsePart reads a canonical non-negative decimal of at most MaxBuildPart.
func parsePart(s string) (int64, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > MaxBuildPart {
		return 0, false
	}
	return n, strconv.FormatInt(n, 10) == s
}
