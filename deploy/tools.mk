# Tools that are not libraries of this module, each pinned to one version and
# installed into .bin. Nothing that `make test` and `make demo` run needs them.
# protoc-gen-go and protoc-gen-go-grpc are `tool` lines of go.mod instead: they
# must match the runtime that the generated code is linked with.

BUF_VERSION      := 1.75.0
GOLANGCI_VERSION := 2.15.0

# A stamp names the version, so that raising a pin installs the tool again.
BUF      := .bin/buf
GOLANGCI := .bin/golangci-lint
BUF_STAMP      := .bin/.buf-$(BUF_VERSION)
GOLANGCI_STAMP := .bin/.golangci-lint-$(GOLANGCI_VERSION)

# buf cannot share a module with our protobuf runtime, and building it takes
# three minutes; its npm package holds the same program. --ignore-scripts: the
# package's own install step is not needed.
$(BUF_STAMP):
	@command -v npm >/dev/null || { echo "buf $(BUF_VERSION): npm is missing; install Node.js (Debian: apt-get install npm)"; exit 1; }
	@mkdir -p .bin .cache/buf
	npm install --prefix .cache/buf --no-save --ignore-scripts --no-audit --no-fund --loglevel=error @bufbuild/buf@$(BUF_VERSION)
	@found=$$(find .cache/buf/node_modules/@bufbuild -path '*/buf-*/bin/buf' -type f | head -n 1); \
	  test -n "$$found" || { echo "buf $(BUF_VERSION): the npm package has no program for this machine"; exit 1; }; \
	  install -m 0755 "$$found" $(BUF)
	@rm -f .bin/.buf-* && touch $@

# About two and a half minutes on two cores, once; cached afterwards.
$(GOLANGCI_STAMP):
	@mkdir -p .bin
	GOBIN=$(CURDIR)/.bin go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v$(GOLANGCI_VERSION)
	@rm -f .bin/.golangci-lint-* && touch $@
