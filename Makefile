# Cellquota. `make help` lists what can be run; CI (.ci/run) runs nothing else.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

include deploy/tools.mk

# ---- knobs -----------------------------------------------------------------

# Packages with goroutines that share memory; the rest is pure and would only
# make the race build longer.
RACE_PKGS ?= ./internal/... ./controlplane/... ./cell/... ./edge/... ./fencing/... ./deploy/... ./cmd/...
FUZZTIME  ?= 20s
BENCH     ?= .
BENCHTIME ?= 1s
SOAK      ?= 10m
# The protos that `verify-generated` must not break.
BREAKING_AGAINST ?= HEAD~1

# ---- the two commands of the README ------------------------------------------

.PHONY: demo
demo: setup ## run the main job on real parts (DEMO_USERS, DEMO_STOCK, DEMO_CELLS, DEMO_KAFKA, DEMO_REPORT, DEMO_KEEP)
	@from=$$SECONDS; $(MAKE) build; echo "built in $$((SECONDS - from)) s"
	@.bin/cellctl dev demo

.PHONY: test
test: setup ## run every unit, property and store test (under 12 minutes on two cores)
	go test -timeout 12m ./...

# ---- build and run -------------------------------------------------------------

.PHONY: build
build: ## build cellquotad, cellctl and cellquota-dev into .bin
	@mkdir -p .bin
	go build -o .bin/ ./cmd/...

.PHONY: dev
dev: setup build ## run a local platform in .dev until Ctrl-C (four cells; what dies is restarted)
	.bin/cellquota-dev up --data-dir .dev --cells 4 --restart

.PHONY: setup
setup: ## find or install what the local platform needs
	@deploy/local/setup $(if $(filter apache,$(DEMO_KAFKA) $(SYSTEM_KAFKA)),kafka)

# ---- tests ---------------------------------------------------------------------

.PHONY: test-race
test-race: setup ## run the tests of concurrent packages under the race detector
	go test -race -timeout 10m $(RACE_PKGS)

.PHONY: test-system
test-system: setup build ## run whole local platforms under faults, and the demo, small (build tag system; SYSTEM_KAFKA=apache)
	go test -tags system -count=1 -timeout 20m ./tests/system/...

.PHONY: test-chaos
test-chaos: setup build ## kill and freeze processes at random for CHAOS_MINUTES (15; CHAOS_SEED repeats a run), long faults of stores, full disks (as root), a herd
	go test -tags chaos -run TestChaos -count=1 -timeout 90m -v ./tests/system/

.PHONY: model
model: ## check the protocol of fence, reclaim and handover, and that three wrong designs break it (spin)
	@deploy/local/setup model
	@deploy/checks/model

.PHONY: bench
bench: ## run every benchmark (BENCH=regexp BENCHTIME=1s or 5x)
	@deploy/local/setup bench
	go test -run '^$$' -bench '$(BENCH)' -benchtime '$(BENCHTIME)' -benchmem -timeout 30m \
	  $$(grep -rl --include='*_test.go' '^func Benchmark' . | xargs -n1 dirname | sort -u)

.PHONY: bench-soak
bench-soak: ## run cellquotad for SOAK (10m) at 1,500 orders/s, then a burst: is its memory flat?
	@deploy/local/setup bench
	BENCH_SOAK=$(SOAK) go test -run '^$$' -bench '^BenchmarkMemory$$' -benchtime 1x -timeout 60m ./cell

.PHONY: fuzz
fuzz: setup ## run every fuzz target for FUZZTIME each (default 20s)
	@deploy/checks/fuzz $(FUZZTIME)

# ---- what CI checks beside tests -------------------------------------------------

.PHONY: lint
lint: $(GOLANGCI_STAMP) ## run golangci-lint and the house rules of internal/tidy
	$(GOLANGCI) run ./...
	go test -count=1 ./internal/tidy/...

.PHONY: format
format: $(GOLANGCI_STAMP) ## format the Go code as lint expects it
	$(GOLANGCI) fmt ./...

.PHONY: generate
generate: $(BUF_STAMP) ## regenerate the Go code of the protos
	$(BUF) generate

.PHONY: verify-generated
verify-generated: $(BUF_STAMP) ## expect lint-clean, compatible protos and current generated code
	@deploy/checks/verify-generated $(BUF) $(BREAKING_AGAINST)

.PHONY: ci
ci: ## run what CI runs
	@.ci/run

.PHONY: help
help: ## list the targets
	@awk 'BEGIN { FS = ":.*## " } /^[a-z][a-z-]*:.*## / { printf "  %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
