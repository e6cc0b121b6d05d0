# `make` lists the targets. CI calls the same ones.

GO ?= go

# The race detector needs cgo and a C compiler. Without them, or with make test RACE=, the
# tests run without it.
RACE := $(shell [ "$$($(GO) env CGO_ENABLED)" = 1 ] && command -v "$$($(GO) env CC | cut -d' ' -f1)" >/dev/null 2>&1 && echo -race)

GOLANGCI_LINT := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
ACTIONLINT    := github.com/rhysd/actionlint/cmd/actionlint@v1.7.12
GOVULNCHECK   := golang.org/x/vuln/cmd/govulncheck@v1.8.0
GOFUMPT       := mvdan.cc/gofumpt@v0.12.0
REDOCLY       := @redocly/cli@2.77.0
SPECTRAL      := @stoplight/spectral-cli@6.16.3

# Packages must not run install scripts.
NPX := npm_config_ignore_scripts=true npx --yes

# Reads .env. A variable that is set already keeps its value.
LOAD_ENV := if [ -f .env ]; then given=$$(export -p); set -a; . ./.env; set +a; eval "$$given"; fi

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  %-10s %s\n", $$1, $$2}' Makefile
	@echo "  The evidence about this program, such as benchmarks and the soak: make -C lab"
	@echo "  The profile of idempotent requests and its conformance command: make -C spec"

.PHONY: demo
demo: ## Run the guided tour; it needs no setup (first build: about a minute)
	@echo "Building cmd/playground (about a minute the first time) …"
	@$(GO) build -o bin/ ./cmd/orders ./cmd/playground
	@$(LOAD_ENV); exec bin/playground demo

# RUN has flags of the program, such as --reset.
.PHONY: run
run: ## Run everything in one process, on a private PostgreSQL and the fake Stripe
	@[ -e bin/playground ] || echo "Building cmd/playground (about a minute the first time) …"
	@$(GO) build -o bin/ ./cmd/orders ./cmd/playground
	@$(LOAD_ENV); exec bin/playground run $(RUN)

# -vet=off: make lint runs vet. -p 3 -parallel 3: tests wait for the database, so several run at
# once beside the compiler; with more, they meet timeouts on a slow machine. GOGC=800 spares the
# compiler garbage collections, and -dwarf=false and -s -w omit debug tables. -N -l omit
# optimizations, because these cost more time than they save; only in the standard library (std)
# they save more. checkptr=0 omits checks of unsafe pointers, which this code does not use. netgo
# and osusergo need no C compiler, and atexit_sleep_ms=0 avoids the race detector's pause of a
# second at the end of each process. The packages that take longest come first, so that none of
# them is alone at the end. withserver starts one PostgreSQL for all. The flags are in GOFLAGS, so that the
# crash cases build the program from the same cache.
LONGEST := $(wildcard ./internal/crash ./cmd/orders ./orders/reconcile ./orders ./api ./cmd/playground)
FLAGS := -vet=off -tags=netgo,osusergo '-ldflags=-s -w' $(RACE) \
	'-gcflags=all=-dwarf=false -d=checkptr=0 -N -l' '-gcflags=std=-dwarf=false -d=checkptr=0'

.PHONY: test
test: ## Run all tests; they start the PostgreSQL they need (RACE=: without the race detector, faster)
	@echo "Testing with$(if $(RACE),,out) the race detector$(if $(DATABASE_URL), on the server of DATABASE_URL) …"
	GOFLAGS="$$GOFLAGS $(FLAGS)" GORACE=atexit_sleep_ms=0 GOGC=800 $(if $(DATABASE_URL),,$(GO) run ./migrations/dbtest/withserver) \
		$(GO) test -p 3 -parallel 3 $(LONGEST) ./...

# go test prints the number of cases only if it runs inside the folder.
.PHONY: crash
crash: ## Run the crash matrix: fail at every round trip and provider call, and detect all mutants (20 minutes to two hours on two cores)
	$(GO) -C internal/crash test -vet=off -count=1 -timeout 150m -args -matrix=all

FUZZTIME ?= 30s

.PHONY: fuzz
fuzz: ## Fuzz each target for FUZZTIME (30s)
	@for folder in $$($(GO) list -f '{{.Dir}}' ./...); do \
		for target in $$(cat $$folder/*_test.go 2>/dev/null | sed -n 's/^func \(Fuzz[A-Za-z_]*\).*/\1/p'); do \
			echo "$$target, for $(FUZZTIME) …"; \
			$(GO) test -vet=off -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$folder || exit 1; \
		done; \
	done

.PHONY: up
up: ## Start PostgreSQL and a mail catcher in containers (compose)
	docker compose up -d --wait

PROFILE ?= app

.PHONY: compose-up
compose-up: ## Start everything in containers: PROFILE=app, with the fake Stripe, or stripe-test
	docker compose --profile $(PROFILE) up -d --build --wait

.PHONY: migrate
migrate: ## Apply the migrations to DATABASE_URL
	@$(LOAD_ENV); $(GO) run ./cmd/orders migrate up

.PHONY: check
check: tidy lint generated memory contract ## Run all checks of CI except the tests (the first run also builds the linters)

.PHONY: tidy
tidy: ## Fail if go.mod or go.sum is not tidy
	$(GO) mod tidy -diff

.PHONY: lint
lint: ## Lint the code, its import rules and .github/workflows
	$(GO) run $(GOLANGCI_LINT) run --allow-parallel-runners
	$(GO) run $(ACTIONLINT)

.PHONY: fmt
fmt: ## Format
	$(GO) run $(GOFUMPT) -w .

PAGES := $(GO) test -vet=off -count=1 -tags pages ./cmd/playground ./cmd/internal/app ./api -run '^TestGenerated$$'

.PHONY: generate
generate: ## Write the generated parts of pages, .env.example, openapi.yaml and the list of metrics
	$(PAGES) -update

.PHONY: generated
generated: ## Fail if a generated part is out of date
	$(PAGES)

.PHONY: memory
memory: ## Fail if an idle API uses 40 MiB or more
	$(GO) test -vet=off -run TestServe_idleMemory ./cmd/orders

.PHONY: contract
contract: ## Lint openapi.yaml, and what refers to it in api/ (needs npm)
	$(NPX) $(REDOCLY) lint --config api/redocly.yaml openapi.yaml api/openapi.service.yaml $(wildcard api/*.arazzo.yaml)
	$(NPX) --package=$(SPECTRAL) -- spectral lint --fail-severity=hint openapi.yaml api/openapi.service.yaml

.PHONY: vuln
vuln: ## Check the called code for known vulnerabilities (needs vuln.go.dev)
	$(GO) run $(GOVULNCHECK) ./...

own: ; @lab/own.sh "$(MODULE)" ## Make this clone your own: make own MODULE=github.com/you/shop (KEEP=demo keeps the demo)

.PHONY: upgrade
upgrade: ## Bring a newer template to the branch template: make upgrade FROM=<its checkout>
	@.ci/upgrade "$(FROM)"
