# Targets of the server; included by the Makefile.

SCHEMATHESIS := $(BUILD)/schemathesis/bin/schemathesis

# Schemathesis makes requests, right and wrong ones, from the API's description and its links; no answer may be a 5xx, and
# every answer must be of a status and type that the description names.
.PHONY: test-schemathesis
test-schemathesis: $(SCHEMATHESIS) ## 10,000 requests from the API's description, for each of two seeds: make test-schemathesis [SEEDS="1 2"]
	$(CARGO) build --locked --package gristmill
	for seed in $(or $(SEEDS),1 2); do SEED=$$seed SCHEMATHESIS=$(abspath $(SCHEMATHESIS)) \
	  GRISTMILL=$(abspath target/debug/gristmill) crates/server/tests/schemathesis.sh || exit 1; done

$(SCHEMATHESIS):
	python3 -m venv $(BUILD)/schemathesis
	$(BUILD)/schemathesis/bin/pip install --quiet --require-hashes --requirement packaging/requirements/schemathesis.txt

# From Maven, npm, PyPI, crates.io and the Go module proxy.
.PHONY: test-generators
test-generators: ## Generators of clients read the API's description: each client compiles and awaits a job: make test-generators [GENERATORS="lint java"]
	@which java mvn node npm go curl > /dev/null || { \
	  echo "Install what clients are built with: apt-get install default-jdk-headless maven golang curl"; exit 2; }
	$(CARGO) build --locked --package gristmill
	GRISTMILL=$(abspath target/debug/gristmill) WORK=$(abspath $(BUILD)/generators) CARGO=$(CARGO) \
	  crates/server/tests/generators/run.sh

.PHONY: bench-agent
bench-agent: build ## Drain over HTTP with a Python script: an agent in batches, and one job at a time
	GRISTMILL=$(abspath target/release/gristmill) crates/agent/benches/drain.sh
