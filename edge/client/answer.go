package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// What can become of a call beside an answer.
var (
	// ErrUnknown: the call was sent and no complete answer came. It may have had its effect.
	ErrUnknown = errors.New("no answer; the outcome is unknown")
	// ErrNotSent: the call never left this machine.
	ErrNotSent = errors.New("the call was not sent")
)

// Answer is what every call answers.
type Answer struct {
	Status     int           // HTTP
	Code       string        // of a problem, such as TEMP_SOLD_OUT; "" for a success
	Detail     string        // of a problem: what to tell a person
	RetryAfter time.Duration // 0: not said
	StatusURL  string        // of a problem: the user's own request
	Errors     []FieldError  // of a problem: what is wrong with the call
	TraceID    string
	Location   string
	Replayed   bool   // Idempotent-Replayed
	Body       []byte // as it came
}

// FieldError names one field of a call and the rule it breaks.
type FieldError struct {
	Pointer string `json:"pointer"`
	Detail  string `json:"detail"`
}

// OK reports whether the call succeeded (2xx).
func (a *Answer) OK() bool { return a.Status >= 200 && a.Status < 300 }

// problem is the body of an error.
type problem struct {
	Code         string       `json:"code"`
	Detail       string       `json:"detail"`
	RetryAfterMS int64        `json:"retry_after_ms"`
	StatusURL    string       `json:"status_url"`
	Errors       []FieldError `json:"errors"`
}

// read fills an Answer from a response whose body was read. A body that is not what its status
// promises is an error: something between us and the edge answered.
func read(r *http.Response, body []byte, out any) (Answer, error) {
	a := Answer{
		Status: r.StatusCode, Body: body,
		TraceID: first(r.Header, "Trace-Id"), Location: first(r.Header, "Location"),
		Replayed: first(r.Header, "Idempotent-Replayed") == "true",
	}
	if seconds, err := strconv.Atoi(first(r.Header, "Retry-After")); err == nil && seconds > 0 {
		a.RetryAfter = time.Duration(seconds) * time.Second
	}
	if a.OK() {
		if out == nil || len(body) == 0 {
			return a, nil
		}
		if err := json.Unmarshal(body, out); err != nil {
			return a, fmt.Errorf("%w: body of status %d: %w", ErrUnknown, a.Status, err)
		}
		return a, nil
	}
	var p problem
	if err := json.Unmarshal(body, &p); err != nil || p.Code == "" {
		return a, fmt.Errorf("%w: status %d without a code", ErrUnknown, a.Status)
	}
	a.Code, a.Detail, a.StatusURL, a.Errors = p.Code, p.Detail, p.StatusURL, p.Errors
	if p.RetryAfterMS > 0 {
		a.RetryAfter = time.Duration(p.RetryAfterMS) * time.Millisecond
	}
	return a, nil
}

// first is a header's first value by its canonical name.
func first(h http.Header, canonical string) string {
	if v := h[canonical]; len(v) > 0 {
		return v[0]
	}
	return ""
}
