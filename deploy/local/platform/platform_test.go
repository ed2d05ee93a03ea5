package platform

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestEndpointsHaveTheContractsShape(t *testing.T) {
	// As the contract prints it, with values of our own.
	const contract = `{"etcd":{"endpoints":["127.0.0.1:1"],"pids":[1]},
 "kafka":{"kind":"embedded","brokers":["127.0.0.1:2"],"pid":2},
 "control_planes":[{"grpc":"127.0.0.1:3","metrics":"http://127.0.0.1:4","console":"http://127.0.0.1:5","pid":3,"log":"l"}],
 "edges":[{"http":"http://127.0.0.1:6","metrics":"http://127.0.0.1:7","pid":4,"log":"l"}],
 "cells":[{"cell_id":"cell-1","region":"east","grpc":"127.0.0.1:8","metrics":"http://127.0.0.1:9",
   "processes":[{"roles":["admission"],"grpc":"127.0.0.1:8","metrics":"m","pid":5,"log":"l"}],
   "redis":"127.0.0.1:10","redis_pid":6,"postgres":"postgres://r","postgres_superuser":"postgres://s","postgres_pid":7,"postgres_data":"d",
   "topic":"cellquota.admissions.cell-1","partitions":[0]}],
 "operators":{"region-operator":"t1","campaign-manager":"t2","sre":"t3","viewer":"t4"},
 "payment_secret":"s","payment_key_id":"k"}`
	file := EndpointsFile(t.TempDir())
	if err := os.WriteFile(file, []byte(contract), 0o600); err != nil {
		t.Fatal(err)
	}
	e, err := ReadEndpoints(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Write(file); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := canonical(t, string(text)), canonical(t, contract); got != want {
		t.Errorf("there and back:\n%s\nwant\n%s", got, want)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v (%v)", info.Mode(), err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(file), ".*")); len(left) > 0 {
		t.Errorf("left beside it: %v", left)
	}
}

func canonical(t *testing.T, text string) string {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestNoPlatformIsToldApart(t *testing.T) {
	dir := t.TempDir()
	if _, err := ReadEndpoints(EndpointsFile(dir)); !errors.Is(err, ErrNotRunning) {
		t.Errorf("no endpoints file: %v", err)
	}
	client := NewClient(dir)
	if _, err := client.Processes(t.Context()); !errors.Is(err, ErrNotRunning) {
		t.Errorf("no socket: %v", err)
	}
	ln, err := Listen(dir)
	if err != nil {
		t.Fatal(err)
	}
	// A killed supervisor leaves its socket.
	if err := ln.(*socket).Listener.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Processes(t.Context()); !errors.Is(err, ErrNotRunning) {
		t.Errorf("a socket on which nobody listens: %v", err)
	}
	again, err := Listen(dir)
	if err != nil {
		t.Fatalf("in place of a socket that was left: %v", err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}

func TestSelect(t *testing.T) {
	names := []string{"etcd", "cell-1/redis", "cell-1/postgres", "cell-1/p1", "cell-1/p2", "cell-10/p1", "edge-1"}
	for name, want := range map[string][]string{
		"etcd": {"etcd"}, "cell-1": {"cell-1/p1", "cell-1/p2"}, "cell-10": {"cell-10/p1"},
		"cell-1/postgres": {"cell-1/postgres"}, "cell-1/p2": {"cell-1/p2"},
	} {
		if got, err := Select(names, name); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v %v, want %v", name, got, err, want)
		}
	}
	for _, name := range []string{"", "cell-2", "edge", "cell-1/", "cell-1/p"} {
		if got, err := Select(names, name); !errors.Is(err, ErrUnknownProcess) || !strings.Contains(err.Error(), "cell-1/p1") {
			t.Errorf("%q: %v %v, want ErrUnknownProcess with the names", name, got, err)
		}
	}
}

func TestParseSignal(t *testing.T) {
	for text, want := range map[string]Signal{"": KILL, "KILL": KILL, "sigterm": TERM, "Stop": STOP, "SIGCONT": CONT} {
		if got, err := ParseSignal(text); err != nil || got != want {
			t.Errorf("%q: %v %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"HUP", "9", "SIG"} {
		if got, err := ParseSignal(text); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v %v, want ErrInvalid", text, got, err)
		}
	}
}

// recorder is a controller that tells what it was asked.
type recorder struct{ asked []string }

func (r *recorder) Processes() []Process { return []Process{{Name: "etcd", State: "READY", PID: 7}} }

func (r *recorder) Kill(_ context.Context, name string, signal Signal) ([]Process, error) {
	r.asked = append(r.asked, string(signal)+" "+name)
	if name == "down" {
		return nil, ErrNotAlive
	}
	return []Process{{Name: name, State: "HELD"}}, nil
}

func (r *recorder) Start(_ context.Context, name string) ([]Process, error) {
	r.asked = append(r.asked, "start "+name)
	if name == "late" {
		return nil, ErrStopping
	}
	return nil, errors.New("no memory")
}

func TestTheProtocolCarriesBothWays(t *testing.T) {
	// Longer than a socket's path may be.
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 40))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	ln, err := Listen(dir)
	if err != nil {
		t.Fatal(err)
	}
	asked := &recorder{}
	server := &http.Server{Handler: Handler(asked)}
	done := make(chan error, 1)
	go func() { done <- server.Serve(ln) }()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
		if _, err := os.Stat(filepath.Join(dir, socketName)); !os.IsNotExist(err) {
			t.Errorf("the socket is left: %v", err)
		}
	})
	info, err := os.Stat(filepath.Join(dir, socketName))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v %v, want mode 0600", info, err)
	}
	client, ctx := NewClient(dir), t.Context()

	if list, err := client.Processes(ctx); err != nil || len(list) != 1 || list[0].PID != 7 {
		t.Errorf("processes: %v %v", list, err)
	}
	if list, err := client.Kill(ctx, "cell-1/p1", STOP); err != nil || list[0].Name != "cell-1/p1" {
		t.Errorf("kill: %v %v", list, err)
	}
	if _, err := client.Kill(ctx, "down", ""); !errors.Is(err, ErrNotAlive) {
		t.Errorf("kill of what is down: %v", err)
	}
	if _, err := client.Kill(ctx, "etcd", "HUP"); !errors.Is(err, ErrInvalid) {
		t.Errorf("an unknown signal: %v", err)
	}
	if _, err := client.Start(ctx, "late"); !errors.Is(err, ErrStopping) {
		t.Errorf("start while stopping: %v", err)
	}
	if _, err := client.Start(ctx, "other"); err == nil || err.Error() != "no memory" {
		t.Errorf("an error without a kind: %v", err)
	}
	want := []string{"STOP cell-1/p1", "KILL down", "start late", "start other"}
	if !slices.Equal(asked.asked, want) {
		t.Errorf("asked %q, want %q", asked.asked, want)
	}
}
