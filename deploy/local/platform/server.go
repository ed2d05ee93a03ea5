package platform

import (
	"context"
	"encoding/json"
	"net/http"
)

// Controller is what serves the protocol: the supervisor. Its errors are those
// that Client documents.
type Controller interface {
	Processes() []Process
	Kill(ctx context.Context, name string, signal Signal) ([]Process, error)
	Start(ctx context.Context, name string) ([]Process, error)
}

// Handler serves the control protocol for c.
func Handler(c Controller) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+pathProcesses, func(w http.ResponseWriter, _ *http.Request) {
		reply(w, c.Processes(), nil)
	})
	mux.HandleFunc("POST "+pathKill, func(w http.ResponseWriter, r *http.Request) {
		var o order
		if err := readMessage(r.Body, &o); err != nil {
			reply(w, nil, err)
			return
		}
		signal, err := ParseSignal(o.Signal)
		if err != nil {
			reply(w, nil, err)
			return
		}
		found, err := c.Kill(r.Context(), o.Name, signal)
		reply(w, found, err)
	})
	mux.HandleFunc("POST "+pathStart, func(w http.ResponseWriter, r *http.Request) {
		var o order
		if err := readMessage(r.Body, &o); err != nil {
			reply(w, nil, err)
			return
		}
		found, err := c.Start(r.Context(), o.Name)
		reply(w, found, err)
	})
	return mux
}

func reply(w http.ResponseWriter, found []Process, err error) {
	w.Header().Set("Content-Type", "application/json")
	var body any = listing{found}
	if err != nil {
		f, status := asFailure(err)
		w.WriteHeader(status)
		body = f
	}
	// A caller that hung up does not want the answer.
	_ = json.NewEncoder(w).Encode(body)
}
