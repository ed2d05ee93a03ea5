package platform

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// The protocol is HTTP over the control socket:
//
//	GET  /processes                      → {"processes":[Process…]}
//	POST /kill  {"name":…,"signal":…}    → {"processes":[Process…]}, those meant
//	POST /start {"name":…}               → {"processes":[Process…]}, those meant
//
// An error is {"error":…,"kind":…} with a kind of the table below.
const (
	pathProcesses = "/processes"
	pathKill      = "/kill"
	pathStart     = "/start"
)

// maxMessage bounds what either side reads; a platform of 64 cells with split
// roles lists itself in a tenth of it.
const maxMessage = 1 << 20

type order struct {
	Name   string `json:"name"`
	Signal string `json:"signal,omitempty"`
}

type listing struct {
	Processes []Process `json:"processes"`
}

type failure struct {
	Error string `json:"error"`
	Kind  string `json:"kind"`
}

// kinds carries the sentinels across the socket.
var kinds = []struct {
	err    error
	kind   string
	status int
}{
	{ErrUnknownProcess, "UNKNOWN_PROCESS", http.StatusNotFound},
	{ErrNotAlive, "NOT_ALIVE", http.StatusConflict},
	{ErrInvalid, "INVALID", http.StatusBadRequest},
	{ErrStopping, "STOPPING", http.StatusServiceUnavailable},
}

// remoteError has the text of the other side and is the sentinel it named.
type remoteError struct {
	text string
	is   error
}

func (e *remoteError) Error() string { return e.text }
func (e *remoteError) Unwrap() error { return e.is }

func (f failure) asError() error {
	for _, k := range kinds {
		if k.kind == f.Kind {
			return &remoteError{f.Error, k.err}
		}
	}
	return errors.New(f.Error)
}

func asFailure(err error) (failure, int) {
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			return failure{err.Error(), k.kind}, k.status
		}
	}
	return failure{err.Error(), "FAILED"}, http.StatusInternalServerError
}

func readMessage(r io.Reader, into any) error {
	dec := json.NewDecoder(io.LimitReader(r, maxMessage))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}
