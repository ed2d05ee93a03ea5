package core

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// Digest names the parameters of a call: equal for equal lists, different for
// different ones (each part is preceded by its length).
func Digest(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(p))))
		h.Write([]byte(p))
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
