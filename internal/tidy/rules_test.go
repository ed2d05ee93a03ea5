package tidy

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// example is a small repository, and the rules it breaks.
type example struct {
	rule   string // "" for one that breaks none
	name   string
	path   string
	source string
}

const doc = "// Package p is a package of an example, with a comment.\n"

// examples break one rule each, or come close to breaking it and do not. A Go
// source without a package clause gets one.
var examples = []example{
	{"import law", "cell → control plane's core", "cell/orders/a.go", `import _ "m/controlplane/core"`},
	{"import law", "edge → cell's insides", "edge/proxy/a.go", `import _ "m/cell/shard"`},
	{"import law", "control plane → cell's insides", "controlplane/link/a.go", `import _ "m/cell/shard"`},
	{"import law", "cell → fencer", "cell/link/a.go", `import _ "m/fencing/fencer"`},
	{"import law", "ctl → control plane's store", "controlplane/ctl/a.go", `import _ "m/controlplane/store"`},
	{"import law", "ctl → driver", "controlplane/ctl/a.go", `import _ "github.com/jackc/pgx/v5"`},
	{"import law", "allocator → library", "allocator/a.go", `import _ "github.com/google/uuid"`},
	{"import law", "allocator → internal", "allocator/a.go", `import _ "m/internal/ids"`},
	{"import law", "allocator → context", "allocator/a.go", `import _ "context"`},
	{"import law", "quantity → allocator", "allocator/quantity/a.go", `import _ "m/allocator"`},
	{"import law", "fencing → log", "fencing/a.go", `import _ "log/slog"`},
	{"import law", "fencing → allocator", "fencing/a.go", `import _ "m/allocator"`},
	{"import law", "core → proto", "controlplane/core/a.go", `import _ "m/proto/cellquota/v1"`},
	{"import law", "core → gRPC", "controlplane/core/a.go", `import _ "google.golang.org/grpc/codes"`},
	{"import law", "core → clock", "controlplane/core/a.go", `import _ "m/internal/clock"`},
	{"import law", "reservation → driver", "cell/reservation/a.go", `import _ "github.com/jackc/pgx/v5"`},
	{"import law", "gate → Redis", "cell/gate/a.go", `import _ "github.com/redis/go-redis/v9"`},
	{"import law", "route → network", "edge/route/a.go", `import _ "net/http"`},
	{"import law", "handler → driver", "cell/api/a.go", `import _ "github.com/jackc/pgx/v5/pgxpool"`},
	{"import law", "edge → driver", "edge/soldout/a.go", `import _ "github.com/redis/go-redis/v9"`},
	{"import law", "internal → component", "internal/config/a.go", `import _ "m/cell/client"`},
	{"import law", "ids → gRPC", "internal/ids/a.go", `import _ "google.golang.org/grpc"`},
	{"import law", "something → tests", "edge/load/a.go", `import _ "m/tests/model"`},
	{"import law", "something → program", "deploy/local/a.go", `import _ "m/cmd/cellctl"`},
	{"import law", "local platform → cell", "deploy/local/a.go", `import _ "m/cell"`},
	{"import law", "a test reaches into another component", "edge/proxy/a_test.go", `import _ "m/controlplane/store"`},
	{"import law", "a room without a row", "warehouse/a.go", ``},
	{"", "cell → control plane's client", "cell/link/a.go", `import _ "m/controlplane/client"`},
	{"", "edge → both clients", "edge/proxy/a.go", "import _ \"m/controlplane/client\"\nimport _ \"m/cell/client\""},
	{"", "control plane → fencer and cell's client", "controlplane/reclaim/a.go", "import _ \"m/fencing/fencer\"\nimport _ \"m/cell/client\""},
	{"", "ctl → load generator", "controlplane/ctl/demo/a.go", `import _ "m/edge/load"`},
	{"", "everyone → leaves", "cell/shard/a.go", "import _ \"m/allocator/quantity\"\nimport _ \"m/fencing\""},
	{"", "core → ids", "controlplane/core/a.go", `import _ "m/internal/ids"`},
	{"", "program → roots", "cmd/cellquotad/main.go", "import _ \"m/cell\"\nimport _ \"m/edge\""},
	{"", "a core's test has tools", "cell/reservation/a_test.go", "import _ \"pgregory.net/rapid\"\nimport _ \"m/internal/testkit\""},
	{"", "a test has the real schema", "fencing/fencer/a_test.go", `import _ "m/cell/shard/migrate"`},
	{"", "a system test sees everything", "tests/system/a_test.go", "import _ \"m/cell/shard\"\nimport _ \"m/controlplane/store\""},

	{"embedded servers", "kfake in the cell", "cell/orders/a.go", `import _ "github.com/twmb/franz-go/pkg/kfake"`},
	{"embedded servers", "etcd's server in the control plane", "controlplane/store/a.go", `import _ "go.etcd.io/etcd/server/v3/embed"`},
	{"", "kfake in the local platform", "cmd/cellquota-dev/internal/kafkaserver/a.go", `import _ "github.com/twmb/franz-go/pkg/kfake"`},
	{"", "etcd's server in a test", "controlplane/store/a_test.go", `import _ "go.etcd.io/etcd/server/v3/embed"`},
	{"", "etcd's client", "controlplane/store/a.go", `import _ "go.etcd.io/etcd/client/v3"`},

	{"testkit", "testkit in production", "edge/api/a.go", `import _ "m/internal/testkit"`},
	{"testkit", "testing in production", "cell/orders/a.go", `import _ "testing"`},
	{"testkit", "toxiproxy in production", "deploy/local/a.go", `import _ "github.com/Shopify/toxiproxy/v2"`},
	{"", "a package for tests", "controlplane/store/storetest/a.go", "import _ \"testing\"\nimport \"time\"\nvar x = time.Now()"},
	{"sleep in a test", "in a package for tests", "edge/celltest/a.go", "import \"time\"\nfunc f() { time.Sleep(1) }"},

	{"clock", "now", "cell/closer/a.go", "import \"time\"\nvar x = time.Now()"},
	{"clock", "since", "edge/api/a.go", "import \"time\"\nfunc f(t time.Time) { _ = time.Since(t) }"},
	{"clock", "ticker", "controlplane/planner/a.go", "import \"time\"\nvar x = time.NewTicker(1)"},
	{"clock", "passed on", "edge/api/a.go", "import \"time\"\nvar now = time.Now"},
	{"clock", "renamed import", "edge/api/a.go", "import clock \"time\"\nvar x = clock.Now()"},
	{"clock", "dot import", "edge/api/a.go", "import . \"time\"\nvar x = Now()"},
	{"", "durations and dates", "edge/api/a.go", "import \"time\"\nvar x = 3 * time.Second\nvar y = time.UnixMilli(5)"},
	{"", "another thing called time", "edge/api/a.go", "type c struct{}\nfunc (c) Now() int { return 1 }\nvar time c\nvar x = time.Now()"},
	{"", "the clock itself", "internal/clock/a.go", "import \"time\"\nvar x = time.Now()"},
	{"", "a test may look at the clock", "edge/api/a_test.go", "import \"time\"\nvar x = time.Now()"},

	{"sleep in a test", "sleep", "edge/api/a_test.go", "import \"time\"\nfunc f() { time.Sleep(1) }"},
	{"sleep in a test", "sleep passed on", "edge/api/a_test.go", "import \"time\"\nvar f = time.Sleep"},
	{"sleep in a test", "sleep by another name", "edge/api/a_test.go", "import \"time\"\nfunc f() { <-time.After(1) }"},
	{"sleep in a test", "sleep after an event", "edge/api/a_test.go", "import \"time\"\nfunc f(c chan int) { select { case <-c: <-time.After(1) } }"},
	{"", "a time-out", "edge/api/a_test.go", "import \"time\"\nfunc f(c chan int) { select { case <-c: case <-time.After(1): } }"},

	{"skipped test", "skip", "edge/api/a_test.go", "import \"testing\"\nfunc f(t *testing.T) { t.Skip(\"no redis\") }"},
	{"skipped test", "skip now", "edge/api/a_test.go", "import \"testing\"\nfunc f(tb testing.TB) { tb.SkipNow() }"},
	{"skipped test", "short", "edge/api/a_test.go", "import \"testing\"\nfunc f() bool { return testing.Short() }"},
	{"", "another Skip", "edge/api/a_test.go", "import \"io/fs\"\nvar x = fs.SkipDir"},

	{"randomness", "v1", "edge/api/a.go", "import \"math/rand\"\nvar x = rand.Int()"},
	{"randomness", "v1 in a test", "cell/shard/a_test.go", "import \"math/rand\"\nvar x = rand.NewSource(1)"},
	{"randomness", "unseeded in the allocator's test", "allocator/a_test.go", "import \"math/rand/v2\"\nvar x = rand.IntN(3)"},
	{"randomness", "system's in the fencer", "fencing/fencer/a.go", "import \"crypto/rand\"\nvar x = rand.Text()"},
	{"", "seeded in the allocator's test", "allocator/a_test.go", "import \"math/rand/v2\"\nvar x = rand.New(rand.NewPCG(1, 2))"},
	{"", "jitter elsewhere", "edge/api/a.go", "import \"math/rand/v2\"\nvar x = rand.IntN(3)"},

	{"SQL in Go", "select", "cell/shard/a.go", "const q = \"SELECT 1\""},
	{"SQL in Go", "raw string with an indent", "controlplane/report/a.go", "const q = `\n\tUPDATE t SET n = $1`"},
	{"SQL in Go", "formatted", "cell/shard/a.go", "import \"fmt\"\nvar q = fmt.Sprintf(\"DELETE FROM %s\", \"t\")"},
	{"", "a word of SQL", "cell/shard/a.go", "const q = \"UPDATE\"\nconst r = \"Select a cell\""},
	{"", "a test's own question", "cell/shard/a_test.go", "const q = \"SELECT 1\""},

	{"accepted requests in memory", "by type", "cell/admission/a.go", "type AcceptedRequest struct{}\nvar c = make(chan *AcceptedRequest, 9)"},
	{"accepted requests in memory", "by name", "cell/relay/a.go", "type r struct { admitted chan int }"},
	{"", "arrivals", "edge/proxy/a.go", "type arrival struct{}\nvar c = make(chan arrival, 9)"},

	{"goroutine", "nobody waits", "cell/relay/a.go", "func f() { go f() }"},
	{"goroutine", "a function of its own", "edge/proxy/a.go", "func f(c chan int) { go func() { c <- 1 }() }"},
	{"goroutine", "one for each of a list", "cell/relay/a.go", "import \"sync\"\nfunc f(list []int) { var wg sync.WaitGroup; for range list { wg.Go(func() {}) }; wg.Wait() }"},
	{"goroutine", "the place is taken too late", "cell/relay/a.go", "import \"sync\"\nfunc f(list []int, places chan int) { var wg sync.WaitGroup; for range list { wg.Go(func() { places <- 1 }) }; wg.Wait() }"},
	{"goroutine", "in a branch of an endless loop", "cell/relay/a.go", "import \"sync\"\nfunc f(c chan int) { var wg sync.WaitGroup; for { if <-c > 0 { wg.Go(func() {}) } } }"},
	{"goroutine", "a row that outlived its loop", "edge/proxy/cells.go", "var x int"},
	{"", "it tells its end", "cell/relay/a.go", "func f() { done := make(chan struct{}); go func() { defer close(done) }(); <-done }"},
	{"", "a group's", "cell/relay/a.go", "import \"sync\"\nfunc f() { var wg sync.WaitGroup; wg.Go(f); wg.Wait() }"},
	{"", "a limit", "cell/relay/a.go", "type g struct{}\nfunc (g) SetLimit(int) {}\nfunc (g) Go(func() error) {}\nfunc f(list []int, all g) { all.SetLimit(3); for range list { all.Go(nil) } }"},
	{"", "a place first", "cell/relay/a.go", "import \"sync\"\nfunc f(list []int, places chan int) { var wg sync.WaitGroup; for range list { places <- 1; wg.Go(func() { <-places }) }; wg.Wait() }"},
	{"", "a list with a bound", "edge/proxy/cells.go", "import \"sync\"\nfunc f(list []int) { var wg sync.WaitGroup; for range list { wg.Go(func() {}) }; wg.Wait() }"},
	{"", "a test's", "cell/relay/a_test.go", "func f() { go f() }"},

	{"retry", "hot", "cell/relay/a.go", "func g() error { return nil }\nfunc f() { for { if err := g(); err == nil { return } } }"},
	{"retry", "until the context ends", "cell/relay/a.go", "import \"context\"\nfunc g() error { return nil }\nfunc f(ctx context.Context) { for ctx.Err() == nil { err := g(); _ = err } }"},
	{"retry", "a select that does not wait", "cell/relay/a.go", "func g() error { return nil }\nfunc f(c chan int) { for { select { case <-c: return; default: }; err := g(); _ = err } }"},
	{"retry", "counted by nobody", "cell/relay/a.go", "func g() error { return nil }\nfunc f() { for try := 1; ; try++ { if err := g(); err == nil { return } } }"},
	{"", "it waits", "cell/relay/a.go", "func g() error { return nil }\nfunc f(c chan int) { for { if err := g(); err == nil { return }; <-c } }"},
	{"", "it is counted", "cell/relay/a.go", "func g() error { return nil }\nfunc f() error { for try := 1; ; try++ { if err := g(); err == nil || try == 3 { return err } } }"},
	{"", "an error ends it", "cell/relay/a.go", "func g() (int, error) { return 0, nil }\nfunc f() error { for { n, err := g(); if err != nil { return err }; if n == 0 { return nil } } }"},

	{"queue", "as long as it must be", "cell/relay/a.go", "func f(n int) chan int { return make(chan int, 2*n) }"},
	{"", "a setting", "cell/relay/a.go", "type c struct{ Queue int }\nfunc f(cfg c, list []int) (chan int, chan int) { return make(chan int, cfg.Queue), make(chan int, len(list)) }"},

	{"left-over marker", "in a comment", "cell/relay/a.go", "// TO" + "DO: later\nvar x int"},
	{"left-over marker", "inside a function", "cell/relay/a.go", "func f() { /* FIX" + "ME */ }"},
	{"left-over marker", "unfinished by string", "cell/relay/a.go", "var x = \"not imple" + "mented\""},
	{"", "a test that expects gRPC's words", "edge/api/a_test.go", "var x = \"method Nope not imple\" + \"mented\"\nvar y = \"not implemented\""},
	{"left-over marker", "in SQL", "cell/shard/a.sql", "SELECT 1; -- X" + "XX"},
	{"left-over marker", "in Lua", "cell/admission/a.lua", "-- not yet imple" + "mented"},
	{"", "a template of mktemp", "deploy/a.sh", "mktemp -d /tmp/x.XXXXXX"},

	{"package name", "util", "internal/util/a.go", "package util"},
	{"package name", "folder", "edge/common/a.go", "package words"},
	{"package name", "in a test", "cell/helpers/a_test.go", "package helpers_test"},
	{"", "a name", "cell/homes/a.go", "package homes"},

	{"package comment", "none", "cell/orders/a.go", "-package orders"},
	{"package comment", "another's", "cell/orders/a.go", "-// Package payment takes payments from customers and gives them back.\npackage orders"},
	{"package comment", "a few letters", "cell/orders/a.go", "-// Package orders.\npackage orders"},
	{"package comment", "program", "cmd/cellctl/main.go", "-package main"},
	{"", "program with one", "cmd/cellctl/main.go", "-// Command cellctl is the tool for people and scripts.\npackage main"},
	{"", "detached comment is none of ours", "cell/orders/a.go", "-// Copyright\n\n// Package orders turns admissions into orders.\npackage orders"},
}

// files makes the example a repository. A source that begins with - is taken as it
// is; one that begins with its package clause gets a comment for it.
func (e example) files() fstest.MapFS {
	source, kept := strings.CutPrefix(e.source, "-")
	if strings.HasSuffix(e.path, ".go") && !kept {
		if !strings.HasPrefix(source, "package ") {
			source = "package p\n" + source
		}
		name := strings.TrimSuffix(strings.Fields(source)[1], "_test")
		source = strings.Replace(doc, "Package p ", "Package "+name+" ", 1) + source
	}
	return fstest.MapFS{
		"go.mod": {Data: []byte("module m\n\ngo 1.26\n")},
		e.path:   {Data: []byte(source)},
	}
}

func TestEveryRuleCanFail(t *testing.T) {
	t.Parallel()
	for _, e := range examples {
		t.Run(e.rule+"/"+e.name, func(t *testing.T) {
			t.Parallel()
			found, err := Check(e.files())
			if err != nil {
				t.Fatal(err)
			}
			if e.rule == "" {
				if len(found) != 0 {
					t.Fatalf("found %v, want nothing", found)
				}
				return
			}
			if len(found) != 1 || found[0].Rule != e.rule {
				t.Fatalf("found %v, want one violation of %q", found, e.rule)
			}
			if v := found[0]; v.Path != e.path || v.Line < 1 || v.What == "" || v.Instead == "" {
				t.Fatalf("a violation that does not say enough: %+v", v)
			}
		})
	}
}

func TestEveryRuleHasExamples(t *testing.T) {
	t.Parallel()
	for _, rule := range Rules() {
		if rule.Law == "" || !slices.ContainsFunc(examples, func(e example) bool { return e.rule == rule.Name }) {
			t.Errorf("rule %q has no law or no example that breaks it", rule.Name)
		}
	}
}

// TestEveryRowRefusesSomething: a row that allowed everything would be no law.
func TestEveryRowRefusesSomething(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, r := range rooms {
		if seen[r.dir] {
			t.Errorf("%s has two rows", r.dir)
		}
		seen[r.dir] = true
		dir := strings.TrimSuffix(r.dir, "/...")
		e := example{path: dir + "/a.go", source: `import _ "m/cmd/cellctl/somewhere"`}
		if dir == "cmd/cellctl" {
			e.source = `import _ "m/cell/shard"`
		}
		found, err := Check(e.files())
		if err != nil || len(found) != 1 || found[0].Rule != importLaw.Name {
			t.Errorf("%s: %v, %v; want one violation of the import law", r.dir, found, err)
		}
	}
}

func TestTheMostExactRowCounts(t *testing.T) {
	t.Parallel()
	for dir, want := range map[string]string{
		"fencing": "fencing", "fencing/fencer": "fencing/fencer", "cell": "cell/...", "cell/shard/migrate": "cell/...",
		"controlplane/ctl/demo": "controlplane/ctl/demo/...", "controlplane/core": "controlplane/core", "cells": "", "allocator/deep": "",
	} {
		got := ""
		if r := roomOf(dir); r != nil {
			got = r.dir
		}
		if got != want {
			t.Errorf("row of %s is %q, want %q", dir, got, want)
		}
	}
}

func TestGeneratedFilesAreNotRead(t *testing.T) {
	t.Parallel()
	e := example{path: "proto/cellquota/v1/a.pb.go", source: "-// Code generated by protoc-gen-go. DO NOT EDIT.\n\npackage cellquotav1\n\nimport \"time\"\n\nvar x = time.Now() // TO" + "DO"}
	if found, err := Check(e.files()); err != nil || len(found) != 0 {
		t.Fatalf("found %v, %v", found, err)
	}
}

func TestPackagesForTestsStayOutOfProduction(t *testing.T) {
	t.Parallel()
	repository := example{path: "edge/celltest/a.go", source: "package celltest"}.files()
	for path, file := range (example{path: "edge/proxy/a.go", source: `import _ "m/edge/celltest"`}).files() {
		repository[path] = file
	}
	for path, file := range (example{path: "edge/proxy/a_test.go", source: `import _ "m/edge/celltest"`}).files() {
		repository[path] = file
	}
	found, err := Check(repository)
	if err != nil || len(found) != 1 || found[0].Rule != testkitLaw.Name || found[0].Path != "edge/proxy/a.go" {
		t.Fatalf("found %v, %v; want one violation of %q in production", found, err, testkitLaw.Name)
	}
}

func TestUnreadableSourceIsAnError(t *testing.T) {
	t.Parallel()
	if _, err := Check(example{path: "cell/a.go", source: "func {"}.files()); err == nil {
		t.Error("a file that does not parse was passed over")
	}
	if _, err := Check(fstest.MapFS{}); err == nil {
		t.Error("a repository without go.mod was passed over")
	}
}

func TestViolationIsOneLineWithItsPlace(t *testing.T) {
	t.Parallel()
	v := Violation{place{"cell/a.go", 7}, "clock", "time.Now", "take a clock.Clock"}
	if got := v.String(); got != "cell/a.go:7: clock: time.Now; instead: take a clock.Clock" {
		t.Fatalf("String() = %s", got)
	}
}
