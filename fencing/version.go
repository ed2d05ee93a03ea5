package fencing

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strconv"
)

// Version is a cell's fence version: its epoch. It only grows. The first is 1;
// 0 means that none is known and is never written anywhere.
//
// It is a type so that a fence version cannot be mistaken for a record's
// version, a term's count or an adjustment's number, all of which travel beside
// it.
type Version uint64

// MaxVersion is the largest version: a shard keeps it as a bigint.
const MaxVersion Version = math.MaxInt64

// ErrVersion says that a number is no fence version, or that none is left above
// one; such a number must not be repaired, because a version that wraps round
// would let every fenced writer back in (I8).
var ErrVersion = errors.New("not a fence version: must be 1 to 2^63-1")

// VersionOf reads a version as stores and messages carry it. ErrVersion for 0
// and below.
func VersionOf(n int64) (Version, error) {
	if n < 1 {
		return 0, fmt.Errorf("%d: %w", n, ErrVersion)
	}
	return Version(n), nil
}

// Next gives the version after v. ErrVersion at MaxVersion.
func (v Version) Next() (Version, error) {
	if v >= MaxVersion {
		return 0, fmt.Errorf("no version above %d: %w", v, ErrVersion)
	}
	return v + 1, nil
}

// Compare gives -1 where v is older than other, 0 where equal, +1 where newer.
func (v Version) Compare(other Version) int { return cmp.Compare(v, other) }

// Int64 gives the version for stores and messages; it fits up to MaxVersion.
func (v Version) Int64() int64 { return int64(v) }

// String gives the decimal digits.
func (v Version) String() string { return strconv.FormatUint(uint64(v), 10) }
