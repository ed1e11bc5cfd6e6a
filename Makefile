SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

GO ?= go
GOLANGCI_LINT := $(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
GOFUMPT := $(GO) run mvdan.cc/gofumpt@v0.12.0

# What may be set on the command line, such as make fuzz FUZZTIME=5m.
ARGS ?=
BENCHES ?= delivery sparse idle memory crash isolation control
CASES ?=
FUZZTIME ?= 30s

# Targets contain slashes and none is a file.
.PHONY: $(shell sed -n 's/^\([a-z][a-z0-9/_-]*\):.*/\1/p' $(MAKEFILE_LIST))

help: ## List the targets
	@sed -n 's/^\([a-z][a-z0-9/_-]*\):.*## \(.*\)/  \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "%-16s %s\n", $$1, $$2}'

build: ## Build the command into bin/gantry
	$(GO) build -trimpath -o bin/gantry ./cmd/gantry

run: ## Start everything in one process, with a demo agent run
	$(GO) run ./cmd/gantry dev $(ARGS)

test: servers ## Run every test with the race detector, against private real servers
	$(GO) test -race -shuffle=on -timeout=20m ./...

test/short: servers ## Run the tests without the race detector and without the long histories
	$(GO) test -short -shuffle=on ./...

test-clients: ## Run the official QStash clients against gantry qstash dev (installs the JavaScript one with npm)
	scripts/test-clients.sh $(ARGS)

servers: ## Install redis-server and PostgreSQL from the system's packages if they are missing
	@scripts/ensure-servers.sh

conformance: servers ## Run the conformance cases (CASES=DIR for others than those of the project)
	$(GO) test ./conformance -count=1 -v $(if $(CASES),-cases=$(abspath $(CASES)))

bench: build servers ## Run the benchmarks with their contenders (BENCHES="idle crash" for some)
	for name in $(BENCHES); do bin/gantry bench $$name $(ARGS); done

fuzz: ## Run each fuzz target for a while (FUZZTIME=30s)
	scripts/fuzz.sh $(FUZZTIME)

lint: ## Check with go vet and golangci-lint, formatting included
	$(GO) vet ./...
	$(GOLANGCI_LINT) run ./...

fmt: ## Format the code
	$(GOFUMPT) -w .

generate: ## Write again what is made from the code: the settings' reference, the API's document
	$(GO) generate ./...

verify: generate ## Fail if something generated, or go.mod, is not up to date
	$(GO) mod tidy -diff
	git diff --exit-code

clean: ## Remove what was built
	rm -rf bin
