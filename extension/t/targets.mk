# The checks. Each installs what it needs (see t/prerequisites.py) and ends with its figures.
.DEFAULT_GOAL := all
PG_CONFIG ?= pg_config
CHECK = PG_CONFIG=$(PG_CONFIG) t/

.PHONY: test-differential

# Random queries, batched against stock: 10,000 pairs. SEED=n repeats a run.
test-differential: all
	$(CHECK)differential_check.py $(if $(SEED),--seed $(SEED)) $(if $(PAIRS),--pairs $(PAIRS))
