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

# The main module does not import these modules.
NESTED := $(patsubst %/go.mod,%,$(wildcard */go.mod))

# Packages must not run install scripts.
NPX := npm_config_ignore_scripts=true npx --yes

# Reads .env. A variable that is set already keeps its value.
LOAD_ENV := if [ -f .env ]; then given=$$(export -p); set -a; . ./.env; set +a; eval "$$given"; fi

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# slim:begin
.PHONY: demo
demo: ## Run the guided tour; it needs no setup (first build: about a minute)
	@echo "Building cmd/orders (about a minute the first time) …"
	@$(GO) build -o bin/orders ./cmd/orders
	@$(LOAD_ENV); exec bin/orders demo
# slim:end

# RUN has flags of the program, such as --reset.
.PHONY: run
run: ## Run everything in one process, on a private PostgreSQL and a stand-in for Stripe
	@$(GO) build -o bin/orders ./cmd/orders
	@$(LOAD_ENV); exec bin/orders dev $(RUN)

# -vet=off: make lint runs vet. -parallel 4: most tests wait for the database. GOGC=400 makes
# the compiler a tenth faster, -s -w omits debug tables, and atexit_sleep_ms=0 avoids the
# race detector's pause of a second at the end of each process.
.PHONY: test
test: ## Run all tests; they start the PostgreSQL they need (RACE=: without the race detector, faster)
	@echo "Testing with$(if $(RACE),,out) the race detector …"
	GORACE=atexit_sleep_ms=0 GOGC=400 $(GO) test -vet=off -ldflags='-s -w' -parallel 4 $(RACE) ./...

# slim:begin
# go test prints the number of cases only if it runs inside the folder.
.PHONY: crash
crash: ## Run the crash matrix: fail at every round trip and provider call, and detect all mutants
	$(GO) -C internal/crash test -vet=off -count=1 -timeout 40m -args -matrix=all

.PHONY: bench
bench: ## Measure the API against its SQL in pgbench (a quarter of an hour; needs pgbench)
	@$(GO) build -o bin/ ./cmd/orders ./cmd/stripetest
	@$(GO) -C bench build -o ../bin/ ./cmd/bench
	bin/bench $(BENCH)

# OUTSIDERS has flags of the program, such as -mode unread -connections 3800.
.PHONY: outsiders
outsiders: ## Measure what 4,100 connections without a valid API key do to all others (a minute)
	@$(GO) build -o bin/ ./cmd/orders
	@$(GO) -C bench build -o ../bin/ ./cmd/outsiders
	bin/outsiders $(OUTSIDERS)

.PHONY: bench-completer
bench-completer: ## Measure the completer, and the service without HTTP
	$(GO) -C bench test -run '^$$' -bench 'Create|Complete' -benchtime 3s ./orders

.PHONY: bench-reaper
bench-reaper: ## Measure orders while a million old keys are deleted (some minutes)
	$(GO) -C bench test -run '^$$' -bench Reap -benchtime 1x -timeout 20m ./orders

.PHONY: bench-store
bench-store: ## Compare ten million keys with ten thousand (25 GB of disk, 6 to 18 minutes)
	$(GO) -C bench test -run '^$$' -bench Store -benchtime 1x -timeout 2h ./orders

.PHONY: bench-waiters
bench-waiters: ## Measure orders while 500 requests wait for a key of another account
	$(GO) -C bench test -run '^$$' -bench Waiters -benchtime 1x ./orders
# slim:end

FUZZTIME ?= 30s

.PHONY: fuzz
fuzz: ## Fuzz each target for FUZZTIME (30s)
	@for folder in $$(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n1 dirname | sort -u); do \
		for target in $$($(GO) test -list '^Fuzz' $$folder | grep '^Fuzz'); do \
			echo "$$target, for $(FUZZTIME) …"; \
			$(GO) test -vet=off -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$folder || exit 1; \
		done; \
	done

# slim:begin
# FUZZ has flags of the program, such as -seed 7 -requests 100000.
.PHONY: contract-fuzz
contract-fuzz: ## Send 20,000 generated requests to a server and check each response against openapi.yaml
	@$(GO) build -o bin/orders ./cmd/orders
	@$(GO) -C tools build -o ../bin/contractfuzz ./contractfuzz
	bin/contractfuzz $(FUZZ)

# SOAK has flags of the program. CI runs a short one: see .ci/run.
.PHONY: soak
soak: ## Run kills, pauses, database crashes, provider faults and all commands at once (a quarter of an hour)
	@$(GO) build -o bin/ ./cmd/orders
	@$(GO) -C bench build -o ../bin/ ./cmd/soak
	bin/soak $(SOAK)
# slim:end

.PHONY: up
up: ## Start PostgreSQL and a mail catcher in containers (compose)
	docker compose up -d --wait

PROFILE ?= app

.PHONY: compose-up
compose-up: ## Start everything in containers: PROFILE=app, with the stand-in, or stripe-test
	docker compose --profile $(PROFILE) up -d --build --wait

.PHONY: migrate
migrate: ## Apply the migrations to DATABASE_URL
	@$(LOAD_ENV); $(GO) run ./cmd/orders migrate up

.PHONY: check
check: announce tidy lint generated memory workflows contract ## Run all checks of CI except the tests

.PHONY: announce
announce:
	@echo "Checking (about three minutes on two cores; the first run also builds the linters and downloads npm packages) …"

.PHONY: tidy
tidy: ## Fail if a go.mod or go.sum is not tidy
	$(GO) mod tidy -diff
	@for module in $(NESTED); do $(GO) -C $$module mod tidy -diff || exit 1; done

.PHONY: lint
lint: ## Lint, including the import rules
	$(GO) run $(GOLANGCI_LINT) run
	@for module in $(NESTED); do \
		echo "$$module …"; (cd $$module && $(GO) run $(GOLANGCI_LINT) run) || exit 1; \
	done

.PHONY: fmt
fmt: ## Format
	$(GO) run $(GOFUMPT) -w .

.PHONY: generate
generate: ## Write the generated parts of pages, .env.example, openapi.yaml, the benchmark's SQL and the list of metrics
	$(GO) test -tags pages ./cmd/internal/boot ./cmd/orders ./api -run '^TestGenerated$$' -update
	$(GO) -C tools test ./docscheck -run '^TestGenerated' -update
# slim:begin
	$(GO) -C tools test ./comparison -run '^TestGenerated$$' -update
	$(GO) -C bench test ./cmd/bench -run '^TestGenerated$$' -update
# slim:end

.PHONY: diagrams
diagrams: ## Draw api/docs/diagrams/*.mmd as SVG (needs npm and Chromium)
	tools/diagrams/generate.sh

.PHONY: generated
generated: ## Fail if a generated part is out of date
	$(GO) test -tags pages ./cmd/internal/boot ./cmd/orders ./api -run '^TestGenerated$$' -count=1
	$(GO) -C tools test ./docscheck -run '^TestGenerated' -count=1
# slim:begin
	$(GO) -C tools test ./comparison -run '^TestGenerated$$' -count=1
	$(GO) -C bench test ./cmd/bench -run '^TestGenerated$$' -count=1
# slim:end

.PHONY: memory
memory: ## Fail if an idle API uses 40 MiB or more
	$(GO) test -run TestServe_idleMemory ./cmd/orders

.PHONY: spec
spec: contract ## contract, and rate openapi.yaml with vacuum (its first build takes ten minutes)
	$(GO) -C tools test -count=1 -vet=off -tags vacuum -run Vacuum -v ./contract

# -count=1: go test does not notice changes outside of its module.
.PHONY: pages
pages: ## Check the pages: links, names, code, and commands with their output
	$(GO) -C tools test -count=1 -vet=off ./docscheck

.PHONY: contract
contract: ## Lint openapi.yaml, compare it with the released one, check the pages, deploy/ and the alerts
	$(GO) -C tools test -count=1 -vet=off ./...
# slim:begin
	$(GO) -C bench test -count=1 -vet=off ./...
# slim:end
	$(NPX) $(REDOCLY) lint openapi.yaml
	$(NPX) --package=$(SPECTRAL) -- spectral lint --fail-severity=hint openapi.yaml
	$(NPX) $(REDOCLY) lint orders.arazzo.yaml
# slim:begin
	tools/ruleset/check.sh env $(NPX) --package=$(SPECTRAL) -- spectral
# slim:end

.PHONY: count
count: ## Count the lines of code and tests, and the words of comments and pages
	@$(GO) -C tools run ./count ..

.PHONY: workflows
workflows: ## Lint .github/workflows
	$(GO) run $(ACTIONLINT)

.PHONY: vuln
vuln: ## Check the called code for known vulnerabilities (needs vuln.go.dev)
	$(GO) run $(GOVULNCHECK) ./...

.PHONY: compose-check
compose-check: ## Place an order in the containers (needs Docker)
	tools/deploy/compose-check.sh

.PHONY: clients-check
clients-check: ## Generate three clients from openapi.yaml and run them
	tools/contract/clients-check.sh

.PHONY: typescript-check
typescript-check: ## Test the TypeScript client, and run the samples of examples/clients
	tools/contract/typescript-check.sh

.PHONY: workflow-check
workflow-check: ## Run the workflows of orders.arazzo.yaml with Redocly Respect
	tools/contract/workflow-check.sh

.PHONY: mock-check
mock-check: ## Request every example from a mock server generated from openapi.yaml
	tools/contract/mock-check.sh

.PHONY: docs-check
docs-check: ## Create an order at /docs in a browser (needs Chromium)
	tools/contract/docs-check.sh

# slim:begin
# ARGS has flags of the command, such as "-level 2 -clause IR-13".
.PHONY: conformance-check
conformance-check: ## Check the API against spec/idempotent-requests.md, with kills and lost responses (four minutes)
	$(GO) -C conformance test -vet=off -count=1 ./...
	conformance/check.sh $(ARGS)

.PHONY: conformance-broken-check
conformance-broken-check: ## Check that the conformance command detects each patch of conformance/testdata/broken (half an hour)
	$(GO) -C conformance test -vet=off -count=1 -timeout 60m -run '^TestBroken$$' . -args -broken

.PHONY: conformance-others-check
conformance-others-check: ## Check other implementations and write conformance/results.md (three minutes; needs npm)
	conformance/others/check.sh

.PHONY: console-check
console-check: ## Test /console in a browser (needs Chromium); PICTURES=folder stores screenshots
	tools/console/check.sh $(PICTURES)
# slim:end

.PHONY: pgbouncer-check
pgbouncer-check: ## Run the tests through PgBouncer (an installed one, or Debian's)
	tools/pgbouncer/check.sh

.PHONY: replication-check
replication-check: ## Kill the primary under load and promote its standby (PostgreSQL's programs must be installed)
	$(GO) test -vet=off -count=1 -tags replication -run '^TestReplication_' ./cmd/orders

.PHONY: citus-check
citus-check: ## Run the service on a Citus cluster (installed, or built from CITUS_SOURCE; a quarter of an hour)
	@CITUS_SOURCE="$(CITUS_SOURCE)" tools/citus/check.sh

.PHONY: patroni-check
patroni-check: ## Kill the leader of a Patroni cluster under load (a quarter of an hour; PostgreSQL's programs must be installed)
	tools/patroni/check.sh

.PHONY: stripe-check
stripe-check: ## Compare the stand-in with Stripe's test mode (needs a test key; without one it lists the checks)
	@set -a; if [ -f .env ]; then . ./.env; fi; set +a; $(GO) -C payments/stripetest/conformance test -vet=off -count=1 -args -stripe

.PHONY: links-check
links-check: ## Request every external link of the pages (needs a network)
	$(GO) -C tools test -vet=off -count=1 -run '^TestLinks_outside$$' ./docscheck -args -fetch

.PHONY: release-spec
release-spec: ## Release the contract; later ones are compared with it: make release-spec VERSION=1.2.3
	tools/contract/release.sh "$(VERSION)"

.PHONY: rename
rename: ## Rename the module: make rename MODULE=github.com/you/shop
	@[ -n "$(MODULE)" ] || { echo "usage: make rename MODULE=github.com/you/shop"; exit 2; }
	@old=$$(sed -n 's/^ *module-path: *//p' .golangci.yml) && [ -n "$$old" ] && $(GO) mod edit -module "$(MODULE)" && \
	echo "Renaming $$old to $(MODULE) in $$(grep -rlF --include='*.go' --include=go.mod "$$old" . | wc -l) files, then checking that all packages build (about a minute the first time) …" && \
	{ grep -rlF --include='*.go' --include=go.mod --include=.golangci.yml --include=rules.yml --include='openapi*.yaml' --include=README.md "$$old" . || :; } | while read -r file; do \
		sed -i.bak "s|$$old|$(MODULE)|g" "$$file" && rm "$$file.bak" || exit 1; \
	done && $(GO) vet ./... && echo "The module is now $(MODULE). See git diff --stat; docs/guides/rename.md lists what keeps its name."

# slim:begin
# SLIM=-force deletes without a git commit to return to.
.PHONY: slim
slim: ## Remove the demo, the console, the example operation, the long tests and their pages from a clone
	@echo "Building tools/slim …"
	@$(GO) -C tools build -o ../bin/slim ./slim
	@bin/slim $(SLIM)

.PHONY: slim-check
slim-check: ## Slim a copy with make slim, then build, vet and test it and check its pages
	$(GO) -C tools test -tags copies -run Slim -count=1 -timeout 30m ./copies -args $(ARGS)

# ARGS=-all runs all of their tests.
.PHONY: rename-check
rename-check: ## Rename one copy with make rename and one with gonew, then build, vet and test both (some minutes)
	$(GO) -C tools test -tags copies -run 'Rename|Gonew' -count=1 -timeout 60m ./copies -args $(ARGS)

.PHONY: guide-check
guide-check: ## Follow docs/add-an-operation.md on a copy, then check its contract (some minutes; needs npm); ARGS=-all runs make test check
	$(GO) -C tools test -tags copies -run Guide -count=1 -timeout 60m ./copies -args $(ARGS)

.PHONY: engine-check
engine-check: ## Copy only the engine into a new module, then build, vet and test it
	$(GO) -C tools test -tags copies -run Engine -count=1 -timeout 20m ./copies
# slim:end
