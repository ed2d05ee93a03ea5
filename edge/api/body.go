package api

import (
	"bytes"
	"errors"
	"io"
	"net/http"

	"github.com/cellquota/cellquota/internal/strictjson"
)

// maxBody bounds a body, in bytes.
const maxBody = 16 << 10

// decode reads a JSON body into out, exactly as the contract wants it (K42, K60).
func (c *call) decode(out any) *problem {
	return decodeFrom(c.r.Body, out)
}

// decodeFrom is decode for a body that was read already.
func decodeFrom(r io.Reader, out any) *problem {
	err := strictjson.Decode(r, maxBody, out)
	if err == nil {
		return nil
	}
	var bad *strictjson.Error
	if errors.As(err, &bad) {
		return at(atBody, InvalidArgument).field(bad.Pointer, bad.Rule)
	}
	return at(atBody, InvalidArgument).field("", "the body could not be read")
}

// empty checks a body that may be absent and, if it is there, must be {}.
func (c *call) empty() *problem {
	raw, p := c.raw()
	if p != nil || len(raw) == 0 {
		return p
	}
	var nothing struct{}
	return decodeFrom(bytes.NewReader(raw), &nothing)
}

// raw reads a body as it is, for a signature that covers its bytes.
func (c *call) raw() ([]byte, *problem) {
	b, err := io.ReadAll(http.MaxBytesReader(c.w, c.r.Body, maxBody))
	if err != nil {
		return nil, at(atBody, InvalidArgument).field("", "the body could not be read, or is larger than 16 KiB")
	}
	return b, nil
}
