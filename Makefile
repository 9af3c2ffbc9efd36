# `make` alone lists the targets: each has its line after the two signs.
.DEFAULT_GOAL := help
SHELL := /bin/bash

BIN      ?= bin/fila
TAGS     ?=
GO       := tools/env go
BENCH    := $(GO) run ./integration/bench
LINT     := .cache/bin/golangci-lint
SEEDS    ?= 200
T        ?= 30s
F        ?= .*
PKG      ?= ./...
SETUPS   ?= 1000
SEED     ?= $(shell date +%s)
N        ?= 1000000
SYNC     ?= always

# The commit goes into the binary where git can say it, and only there: in a
# directory that git does not trust, asking makes the build fail.
VCS := $(shell git status --porcelain >/dev/null 2>&1 && echo auto || echo false)

# The adapters in Go: modules of their own. The others have scripts that run their tests.
ADAPTERS := adapters/go adapters/watermill adapters/gocloud adapters/sqs adapters/postgres
FRAMEWORKS := celery python activejob node symfony nestjs

# When tests of a package are taken to hang: far beyond what they take on a small and busy machine.
HANGS := 1h

.PHONY: $(shell awk -F: '/^[a-z-]+:.*## / { print $$1 }' Makefile)

help: ## list the targets
	@awk -F ':.*## ' '/^##@ / { print "\n" substr($$0, 5) } /^[a-z-]+:.*## / { printf "  %-17s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

##@ Build and run

setup: ## install what building needs, if it is missing (Debian, Ubuntu)
	@CGO_ENABLED=0 tools/env true
	@bash .ci/setup

build: setup ## make bin/fila with RocksDB
	CGO_ENABLED=1 $(GO) build -buildvcs=$(VCS) -trimpath -tags "$(TAGS)" -o $(BIN) .

ADMIN := 127.0.0.1:5557
run: build ## build and start the broker, data in ./data, HTTP for operators on 127.0.0.1:5557
	exec $(BIN) --admin.listen_addr $(ADMIN)

cluster: build ## run a cluster of three nodes on this machine, data in ./data, and say how to kill one and watch
	exec tools/cluster

# Packages: deploy/release has what these do, docs/how-to/packages.md says it in words.
PREFIX  ?= /usr/local
DESTDIR ?=
install: ## install what `make build` has made: make install PREFIX=/usr/local DESTDIR=
	bash deploy/release/layout.sh $(BIN) $(BIN) "$(DESTDIR)" "$(PREFIX)"

clean: ## remove what was built, never the data
	rm -rf bin dist site .cache

##@ Test

# The phases of each, and how they are run, are in integration/tiers.
TIERS := $(GO) run ./integration/tiers
quick: ## test what needs neither cgo nor a process: the loop of development, 90 seconds
	CGO_ENABLED=0 $(TIERS) quick $(PHASES)

test: setup-tests setup-dashboard ## test all that a change has to pass: 10 minutes on two cores; make test PHASES="race site"
	$(TIERS) test $(PHASES)

check: setup-tests setup-dashboard $(LINT) ## lint, then test: what CI runs
	$(TIERS) check $(PHASES)

prove: setup-tests setup-dashboard ## test everything at length, an hour and more; it goes on where it was interrupted: make prove PHASES="fuzz torture"
	$(TIERS) prove $(PHASES)

# One run for all modules, without those that UNLINTED names: a workspace names them.
MODULES := ./... ./integration/peers/... ./integration/chart/... ./integration/dashboard/... ./internal/ops/admin/ui/build/... ./adapters/sqs/tests/... $(ADAPTERS:%=./%/...)
lint: $(LINT) ## check format and lint of all modules, and the types of the dashboard
	GOWORK=$(CURDIR)/tools/lint.work $(LINT) run $(filter-out $(UNLINTED),$(MODULES))
	@if [ -e $(TSC) ]; then echo $(TSC) && $(TSC) -p internal/ops/admin/ui; else echo "lint: the types of the dashboard are not checked, make setup-dashboard fetches tsc"; fi

fmt: $(LINT) ## format
	$(LINT) fmt

golden: ## write again the expectations of script and golden tests; read the diff before you commit it
	CGO_ENABLED=0 $(GO) test ./commands -run '^TestScripts$$' -count=1 -args -rewrite
	CGO_ENABLED=0 $(GO) test ./storage -run '^TestFormatIsWhat' -count=1 -args -update

# Pinned, so that a new release of the tool is a decision. It asks vuln.go.dev.
vuln: ## look for known vulnerabilities in what the broker is built from
	go run golang.org/x/vuln/cmd/govulncheck@v1.1.4 ./...

##@ Documents and pages

docs: ## write again the documents that are made from code
	CGO_ENABLED=0 $(GO) run . config --format markdown > docs/reference/configuration.md.new
	mv docs/reference/configuration.md.new docs/reference/configuration.md
	CGO_ENABLED=0 $(GO) run . commands --format markdown > redis-compat.md.new
	mv redis-compat.md.new redis-compat.md
	CGO_ENABLED=0 $(GO) test ./internal/ops/tracing -run '^TestTheDocumentHas' -count=1 -args -update
	CGO_ENABLED=0 $(GO) run . help --markdown > docs/reference/cli.md.new
	mv docs/reference/cli.md.new docs/reference/cli.md
	CGO_ENABLED=0 $(GO) test ./internal/broker/compat -count=1 -run '^(TestTheTableOfCosts|TestThePagesOf)' -args -rewrite
	CGO_ENABLED=0 $(GO) test ./internal/ops/metrics -count=1 -run '^TestTheDocumentIs' -args -update
	CGO_ENABLED=0 $(GO) test ./internal/tidy -count=1 -run '^TestTheListForLanguageModelsHas' -args -llms

docs-pictures: build ## write again the picture of fair shares, from a run
	TEST_BROKER=$(BIN) CGO_ENABLED=0 $(GO) test -count=1 ./integration -run '^TestTheFairnessPicture' -args -draw

site: ## make a site of the documents in site, to be opened from disk or put on any server
	CGO_ENABLED=0 $(GO) test ./internal/tidy -count=1 -run '^TestTheListForLanguageModelsHas' -args -llms
	cd tools/site && CGO_ENABLED=0 go run . ../.. ../../site

# What the dashboard contains comes from npm, its bundler is a Go library; the broker is built without either.
ui: ## make internal/ops/admin/ui/dist, the dashboard, from its sources; commit what it makes
	cd internal/ops/admin/ui && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	cd internal/ops/admin/ui/build && CGO_ENABLED=0 go run .

clients: setup-tests ## try Fila with every client library, and write the matrix of them into docs/reference/clients.md
	CGO_ENABLED=1 $(GO) test ./integration/clients -count=1 -v -run '^TestClients$$' -args -update | grep -v '^=== '

##@ Parts of prove

setup-tests: ## install what all tests need beside that: Redis, and the languages of the clients that are tried
	@CGO_ENABLED=0 tools/env true
	@bash .ci/setup tests

TSC := integration/dashboard/node_modules/.bin/tsc

setup-dashboard: ## install what the dashboard is built and tested with, if it is missing: Preact, uPlot, Chromium, axe, tsc
	@bash .ci/setup-dashboard

setup-release: ## install what release and test-packages need, if it is missing (Debian 12)
	@bash .ci/setup-release

race: setup ## run the tests of PKG under the race detector, at full length
	CGO_ENABLED=1 $(GO) test -race -timeout $(HANGS) $(PKG)

rocks: setup ## run the tests of the RocksDB store
	CGO_ENABLED=1 $(GO) test -count=1 ./storage/...

# Without the mechanisms of package tuning: see docs/internals/below-the-defaults.md.
plain: ## make bin/fila-plain, which leaves Go's scheduler and RocksDB at their defaults, and run its quick tests
	$(MAKE) build TAGS=plain BIN=bin/fila-plain
	CGO_ENABLED=0 $(GO) test -tags plain -short ./resp ./engine ./engine/loop

plain-integration: setup-tests ## make bin/fila-plain, and run the black-box tests with it
	$(MAKE) build TAGS=plain BIN=bin/fila-plain
	TEST_BROKER=bin/fila-plain CGO_ENABLED=0 $(GO) test -count=1 -timeout $(HANGS) -skip '^TestTheReadmesOfTheAdapters$$' ./integration

# Only what is C++ here is instrumented: RocksDB is the system's. Go's own race detector cannot see
# C++, see race. With -o, the binary keeps the symbols that suppressions name.
CPP  := Lanes|LargeValues|ReadingWithinAKey|VeryManyReaders|LieTogether|AGetFrees
SANE  = CGO_ENABLED=1 CGO_CFLAGS="-O1 -g $(1)" CGO_CXXFLAGS="-O1 -g -fno-omit-frame-pointer $(1)" CGO_LDFLAGS="$(1)"
TSAN := ignore_noninstrumented_modules=1 suppressions=$(CURDIR)/storage/rocks/testdata/tsan.txt

sanitize: setup ## run the tests of the store's C++ under AddressSanitizer, then under ThreadSanitizer
	$(call SANE,-fsanitize=address) $(GO) test -asan -short -count=1 -run '$(CPP)|RocksIsAStore|CloseAndReopen|ALogWithoutSpace' ./storage/rocks
	@mkdir -p bin
	$(call SANE,-fsanitize=thread) TSAN_OPTIONS="$(TSAN)" $(GO) test -short -count=1 -o bin/rocks-tsan.test -run '$(CPP)' ./storage/rocks

sim: ## simulate crashes and bad weather: make sim SEEDS=200
	CGO_ENABLED=0 $(GO) test ./engine -run '^TestSimulation$$' -count=1 -timeout 12h -args -seeds=$(SEEDS)

sim-nodes: ## the same for several nodes that are one broker: make sim-nodes SEEDS=200
	CGO_ENABLED=0 $(GO) test ./engine -run '^TestSimulationOfNodes$$' -count=1 -timeout 12h -v -args -nodeseeds=$(SEEDS)

shares: ## try the scheduler with random set-ups, each run with others: make shares SETUPS=1000 SEED=1
	CGO_ENABLED=0 $(GO) test ./engine -run '^TestEveryRuleHoldsInRandomSetUps$$' -count=1 -timeout 2h -v -args -setups=$(SETUPS) -seed=$(SEED)

fuzz: ## run the fuzz targets that match F, each for a while: make fuzz T=30s F='Reader|Conversation'
	tools/fuzz $(T) '$(F)'

torture: build ## kill the broker again and again under load, then judge it by its answers: make torture T=10m
	$(GO) run ./integration/torture -bin $(BIN) -t $(T)

torture-order: build ## the same, mostly for an ordered queue: a million deliveries, one in ten of which fails: make torture-order N=1000000
	$(GO) run ./integration/torture -bin $(BIN) -t 12h -ordered 90 -rate 20000 -producers 8 -consumers 24 -deliveries $(N) $(ARGS)

torture-nodes: build ## the same for a cluster: kills, stops, empty, old and full disks, silent links, partitions, hand-overs: make torture-nodes T=10m NODES=5
	$(GO) run ./integration/torture -bin $(BIN) -nodes $(or $(NODES),3) -heal 5s -t $(T) $(ARGS)

powercut: build ## the same with cuts of the power: make powercut T=10m SYNC=interval
	$(GO) run ./integration/torture -bin $(BIN) -t $(T) -by power -sync $(SYNC)

powercut-nodes: setup ## cut the power of a cluster N times, mostly of all nodes at once: make powercut-nodes N=200
	$(MAKE) build TAGS=fault BIN=bin/fila-fault
	$(GO) run ./integration/torture -bin bin/fila-fault -nodes 3 -by power -scatter -t 12h -calm 800ms -n $(if $(filter command line environment,$(origin N)),$(N),200) $(ARGS)

stale: build ## stop leaders N times under load: what one hands out when it goes on: make stale N=200
	TEST_BROKER=$(BIN) CGO_ENABLED=0 $(GO) test -count=1 -timeout $(HANGS) -v ./integration -run '^TestAStoppedLeaderHandsOutNothing$$' -args -stale-rounds $(if $(filter command line environment,$(origin N)),$(N),200)

credits: build ## kill the broker 20 times while 100 workers share a budget, then judge its sums by the answers
	TEST_BROKER=$(BIN) CGO_ENABLED=0 $(GO) test -count=1 -timeout $(HANGS) -v ./integration -run '^TestCreditsAddUpWhenTheBrokerIsKilled$$' -args -budget-workers 100 -budget-kills 20

faults: setup ## plant faults into brokers, one each, and see that the torture finds them
	CGO_ENABLED=0 $(GO) test -count=1 -tags fault ./internal/fault
	CGO_ENABLED=1 $(GO) test -count=1 -timeout $(HANGS) ./integration/torture -run '^TestTortureFinds'

damage: build ## damage N stores, and judge each start, check and repair: make damage N=200
	$(GO) run ./integration/damage -bin $(BIN) -n $(if $(filter command line environment,$(origin N)),$(N),200)

test-adapters: build ## let the frameworks' own suites drive the adapters and a real broker
	@for d in $(ADAPTERS); do (cd $$d && TEST_BROKER=$(CURDIR)/$(BIN) CGO_ENABLED=0 go test -count=1 -tags stress -timeout $(HANGS) ./...) || exit 1; done
	@for f in $(FRAMEWORKS); do echo "$$f" && TEST_BROKER=$(CURDIR)/$(BIN) adapters/$$f/tests/run || exit 1; done

test-readmes: setup-tests build ## make the packages of the adapters, install each in an empty folder, and follow its README
	cd tools/packages && CGO_ENABLED=0 go test -count=1 .
	TEST_BROKER=$(CURDIR)/$(BIN) CGO_ENABLED=0 $(GO) test -count=1 -timeout $(HANGS) -v ./integration -run '^TestTheReadmesOfTheAdapters$$'

test-celery: ## let the Celery of Debian 13, which is newer, drive its adapter there: see test-systems
	integration/systems/try -as dev -make "setup-tests build test-adapters ADAPTERS= FRAMEWORKS=celery" trixie

# Not for CI: the collector has two hundred modules, and is built once.
test-collector: setup-tests ## try tracing with a real OpenTelemetry collector between the broker and the tests
	integration/collector/build .cache/collector
	TEST_COLLECTOR=$(CURDIR)/.cache/collector/otelcol CGO_ENABLED=1 $(GO) test -count=1 -v ./integration -run 'Trace|OfTheProducersSpan|Collector'

test-dashboard: setup-dashboard build site ## drive the dashboard in Chromium: make test-dashboard ARGS="-run BadDay", or -args -pictures for those of the documents
	cd integration/dashboard && TEST_BROKER=$(BIN) CGO_ENABLED=0 go test -count=1 -timeout $(HANGS) . $(ARGS)

test-metrics: setup-tests ## try the metrics with promtool and a real Prometheus: every alert, every expression of rules and dashboard
	CGO_ENABLED=1 $(GO) test -count=1 -v ./integration/metrics ./internal/ops/metrics

test-packages: setup-release ## make a release twice, then boot, run, kill and upgrade what is in it, as root
	bash deploy/test/all.sh

test-site: site setup-dashboard ## open the site in Chromium, from disk and from a server: every link, the search, the themes
	cd tools/site && CGO_ENABLED=0 go test -count=1 .
	cd integration/dashboard && CGO_ENABLED=0 go test -count=1 -timeout $(HANGS) -run '^TestTheSite' . $(ARGS)

# Debian 12 and 13, Ubuntu 22.04 and 24.04, as root and as a user. It needs root, debootstrap,
# and half an hour for each system.
test-systems: ## build and try Fila on other systems: make test-systems SYSTEMS="trixie jammy" ARGS=-full
	integration/systems/try $(ARGS) $(SYSTEMS)

##@ Benchmarks

bench: setup ## run the benchmarks
	CGO_ENABLED=1 $(GO) test -run '^$$' -bench . -benchmem $(PKG)

demo: build ## hash this machine's documentation with worker processes while the broker is killed twice
	$(GO) run ./integration/demo -bin $(BIN)

bench-backlog: build ## fill a queue with N messages; report memory, restart and drain: make bench-backlog N=10000000
	$(BENCH) backlog -bin $(BIN) -n $(N)

# The engine's part: how long the loop's turns last when the month of a million budgets begins.
bench-budgets: build ## what a million budgets cost: memory, start, waking, turns when their month begins: make bench-budgets ARGS="-n 100000"
	$(BENCH) budgets -bin $(BIN) $(ARGS)
	CGO_ENABLED=0 $(GO) test ./engine -run '^$$' -bench MonthOfManyBudgets -benchtime 1x -timeout 30m

bench-catchup: build ## the rate of a leader while a follower that is 1 GiB behind catches up: make bench-catchup ARGS="-log 268435456" for a copy
	$(BENCH) catchup -bin $(BIN) $(ARGS)

bench-churn: build ## fill and drain for a while with ever new keys: does memory grow? make bench-churn T=1h
	$(BENCH) churn -bin $(BIN) -n 400000 -t $(if $(filter command line environment,$(origin T)),$(T),10m) -target

setup-peers: ## install what bench-peers compares with, if it is missing (Debian, npm)
	@bash .ci/setup-peers

# The peers' clients are in a module of their own: Fila is not built from them.
bench-peers: build ## compare the broker and its plain build with Redis Streams, RabbitMQ, NATS, beanstalkd, BullMQ and asynq: make bench-peers ARGS=-quick
	$(MAKE) build TAGS=plain BIN=bin/fila-plain
	cd integration/peers && go build -buildvcs=false -o ../../bin/peers . && go build -buildvcs=false -o ../../bin/natsd ./natsd
	bin/peers $(ARGS)

bench-peers-nodes: build ## the same for clusters of three nodes: Fila, RabbitMQ with quorum queues, NATS with R3: make bench-peers-nodes ARGS=-quick
	cd integration/peers && go build -buildvcs=false -o ../../bin/peers . && go build -buildvcs=false -o ../../bin/natsd ./natsd
	bin/peers -nodes $(ARGS)

bench-promises: build ## measure the cycle with a hook, a million keys or tenants, a backlog of ten, groups and records of done messages, and the way to a waiting consumer
	$(BENCH) promises -bin $(BIN) $(ARGS)

bench-long: build ## ten minutes at 70 % of the greatest rate: does it hold, how long is a pause?
	$(BENCH) promises -bin $(BIN) -only long $(ARGS)

bench-cycle: build ## the rates of the binary, or beside another in turns: make bench-cycle ARGS="-against bin/before -only 64x16,16x1"
	$(BENCH) cycle -bin $(BIN) $(ARGS)

bench-dashboard: setup-dashboard build ## what other clients wait for at a million keys and 10,000 queues while dashboards are open in Chromium, and while one searches a million messages
	cd integration/dashboard && TEST_BROKER=$(BIN) CGO_ENABLED=0 go test -count=1 -timeout 60m -v -run 'WhatWatches|ASearch|ManyQueuesAndKeys' . -args -keys 1000000 -rounds 3 -watch 20s -strict $(ARGS)

bench-metrics: build ## what a scrape costs: the cycle with the admin listener on and scraped every 5 s, beside the same without, ten pairs
	$(BENCH) cycle -bin $(BIN) -only 64x16,16x1 -rounds 10 -scrape 5s $(ARGS)

bench-failover: build ## for how long clients wait when the leader of a cluster is killed 50 times, ends in order, or hands over
	$(BENCH) failover -bin $(BIN) $(ARGS)

bench-nodes: build ## the cycle on three nodes beside that of a broker alone, directly and through a follower; a cluster without work
	$(BENCH) nodes -bin $(BIN) $(ARGS)

bench-operators: build ## what other clients wait for at a million keys and 10,000 queues: scrapes, dashboards, fila top, searches, redrives
	$(BENCH) operators -bin $(BIN) $(ARGS)

bench-connections: build ## what N connections cost that wait or idle: make bench-connections N=10000
	$(BENCH) connections -bin $(BIN) -n $(if $(filter command line environment,$(origin N)),$(N),10000)

bench-lifecycle: setup ## how long the loop's turns last while a million messages fall due, are browsed or purged; how long an engine takes until it serves 100,000 fairness keys
	CGO_ENABLED=1 $(GO) test ./internal/broker -run '^$$' -bench '^BenchmarkLifecycle' -benchtime 1x -timeout 30m

bench-stalls: setup ## what other clients wait for while a command or a timer handles very much: make bench-stalls ARGS="-stall-keys 100000"
	CGO_ENABLED=1 $(GO) test ./internal/broker -run '^$$' -bench '^BenchmarkStalls' -benchtime 1x -timeout 30m -args $(ARGS)

# Both sides of each comparison run in one process, in turns.
bench-scheduler: build ## what fairness, many keys and throttles cost: in the engine alone, then in the broker (ARGS="-only 10,many")
	set -o pipefail; CGO_ENABLED=0 $(GO) test ./engine -run '^$$' -bench 'Against' -benchtime 150x -timeout 30m | tee bin/bench-scheduler.txt
	CGO_ENABLED=0 $(GO) test ./engine -run '^$$' -bench 'TokenBucket' -timeout 30m
	$(BENCH) scheduler -bin $(BIN) -engine bin/bench-scheduler.txt $(ARGS)

bench-topics: build ## publish to ten queues beside ten enqueues, an ordered queue beside another, and messages that use neither, in turns
	$(BENCH) topics -bin $(BIN) $(ARGS)

##@ Releases

release-adapters: setup-tests ## make the packages of the adapters in dist/adapters: wheels, sdists, npm tarballs, a gem, an archive for Composer, Go modules
	@go -C tools/packages run . -o "$(CURDIR)/dist/adapters" "$(CURDIR)"
	@cd dist/adapters && find . -type f -not -path './goproxy/*' | sort && echo "Go modules: GOPROXY=file://$$PWD/goproxy"

release: setup-release ## make archives, packages, images, SBOM and sums in dist: make release ARCHES="amd64 arm64"
	bash deploy/release/release.sh

# The linter is pinned in a module of its own, so that what it needs never
# touches what the broker is built from. Building it takes minutes, once.
$(LINT): tools/go.mod tools/go.sum
	@mkdir -p $(@D)
	$(GO) build -buildvcs=false -modfile=tools/go.mod -o $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint
