# The Python package's targets, for the top Makefile to include.

PYTHON_VENV := $(BUILD)/python/venv
PYTHON_TOOLS := $(BUILD)/python/tools
# Both workspaces compile into one folder, so that they share what they have in common.
PYTHON_BUILD := CARGO_TARGET_DIR=$(CURDIR)/target
MATURIN := $(CURDIR)/$(PYTHON_TOOLS)/bin/maturin

.PHONY: python
python: build $(PYTHON_TOOLS)/installed ## Build the wheel, with the program in it: build/python/wheels/
	install -D target/release/gristmill python/gristmill/bin/gristmill
	cd python && $(PYTHON_BUILD) $(MATURIN) build --quiet --release --locked --out ../$(BUILD)/python/wheels

.PHONY: test-python
test-python: $(PYTHON_TOOLS)/installed ## Build a wheel for tests, install it into a new venv and run its tests
	$(CARGO) build --locked --package gristmill
	install -D target/debug/gristmill python/gristmill/bin/gristmill
	rm -rf $(BUILD)/python/test-wheels $(PYTHON_VENV)
	cd python && $(PYTHON_BUILD) $(MATURIN) build --quiet --profile dev --locked --out ../$(BUILD)/python/test-wheels
	python3 -m venv $(PYTHON_VENV)
	$(PYTHON_VENV)/bin/python -m pip install --quiet --require-hashes --requirement packaging/requirements/python-tests.txt
	$(PYTHON_VENV)/bin/python -m pip install --quiet --no-index --no-deps $(BUILD)/python/test-wheels/*.whl
	cd python && ../$(PYTHON_VENV)/bin/python -m mypy --strict --cache-dir ../$(BUILD)/python/mypy gristmill
	$(PYTHON_VENV)/bin/python -m mypy.stubtest gristmill._native --ignore-disjoint-bases
	cd python/tests && ../../$(PYTHON_VENV)/bin/python -m pytest --quiet -p no:cacheprovider .

test: test-python

.PHONY: lint-python
lint-python: ## Check the format of the extension module, and run clippy on it, warnings denied
	cd python && $(CARGO) fmt --check
	cd python && $(PYTHON_BUILD) $(CARGO) clippy --locked --features extension-module -- -D warnings

lint: lint-python

.PHONY: bench-python
bench-python: python ## The package's figures beside multiprocessing's, written to bench/RESULTS-python.md
	$(MAKE) --no-print-directory bench-python-run FIGURES='--output bench/RESULTS-python.md'

.PHONY: bench-python-quick
bench-python-quick: python ## The same with few items and one run each, to see that it works
	$(MAKE) --no-print-directory bench-python-run FIGURES=--quick

.PHONY: bench-python-run
bench-python-run:
	rm -rf $(BUILD)/python/bench-venv
	python3 -m venv $(BUILD)/python/bench-venv
	$(BUILD)/python/bench-venv/bin/python -m pip install --quiet $(BUILD)/python/wheels/*.whl
	$(BUILD)/python/bench-venv/bin/python python/bench/figures.py $(FIGURES)

$(PYTHON_TOOLS)/installed:
	python3 -m venv $(PYTHON_TOOLS)
	$(PYTHON_TOOLS)/bin/python -m pip install --quiet --require-hashes --requirement packaging/requirements/maturin.txt
	touch $@
