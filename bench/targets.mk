# The benchmark's targets, for the top Makefile to include.

.PHONY: bench
bench: ## Gristmill beside its peers, measured; the table goes to bench/RESULTS.md
	bench/run

.PHONY: bench-quick
bench-quick: ## The same with few jobs and one run each, to see that it works
	bench/run --quick

.PHONY: bench-postgres
bench-postgres: ## The same on PostgreSQL, with servers and agents; the table goes to bench/RESULTS-postgres.md
	bench/run-postgres

.PHONY: bench-postgres-quick
bench-postgres-quick: ## The same with few jobs and one run each, to see that it works
	bench/run-postgres --quick

.PHONY: bench-lanes
bench-lanes: ## Submits, claims and drains with up to 100,000 combinations of queue, kind and group, on both stores
	$(CARGO) bench --locked -p gristmill-store-sqlite --bench sqlite -- lanes
	ONLY=lanes $(CARGO) bench --locked -p gristmill-store-postgres --bench postgres

.PHONY: bench-scheduler
bench-scheduler: ## The scheduler on both stores beside its peer; the table goes to bench/RESULTS-scheduler.md
	bench/run-scheduler

.PHONY: bench-scheduler-quick
bench-scheduler-quick: ## The same with few jobs and one run each, to see that it works
	bench/run-scheduler --quick

.PHONY: bench-flows
bench-flows: python ## Durable flows on both stores beside DBOS and Absurd; the tables go to bench/RESULTS-flows.md
	rm -rf $(BUILD)/python/flows-venv
	python3 -m venv $(BUILD)/python/flows-venv
	$(BUILD)/python/flows-venv/bin/python -m pip install --quiet $(BUILD)/python/wheels/*.whl dbos==3.4.0 absurd-sdk==0.5.1 absurdctl==0.5.1 'psycopg[binary]'
	bench/run-flows --python $(BUILD)/python/flows-venv/bin/python --output bench/RESULTS-flows.md

# BEFORE is an interpreter with an older build of the package, which is measured in the same run.
.PHONY: bench-lost
bench-lost: python ## The work in which others were faster, beside them; the table goes to bench/RESULTS-lost.md
	rm -rf $(BUILD)/python/lost-venv
	python3 -m venv $(BUILD)/python/lost-venv
	$(BUILD)/python/lost-venv/bin/python -m pip install --quiet $(BUILD)/python/wheels/*.whl joblib==1.6.0
	bench/run-lost --python $(BUILD)/python/lost-venv/bin/python $(if $(BEFORE),--before $(BEFORE)) --output bench/RESULTS-lost.md

.PHONY: bench-real
bench-real: test-bench ## Jobs that take real time beside process pools and queues; the table goes to bench/RESULTS-real.md
	bench/run-real

.PHONY: bench-real-quick
bench-real-quick: test-bench ## The same with few jobs and one run each, to see that it works
	bench/run-real --quick

# DEVICE_PYTHON is an interpreter with PyTorch, transformers, cloudpickle and this version of the package; DEVICE_FLAGS, such as
# `--parts cores --items 500`, are options of the script.
DEVICE_PYTHON ?= python3
.PHONY: bench-device
bench-device: ## Embeddings, a warm kernel and cores on a machine with a GPU; DEVICE_PYTHON has PyTorch, transformers and the package
	$(DEVICE_PYTHON) bench/device/measure.py $(DEVICE_FLAGS)

.PHONY: test-bench
test-bench: ## The benchmarks' own checks; less than a second
	python3 -B bench/real/check.py
