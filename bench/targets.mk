# The benchmark's targets, for the top Makefile to include.

.PHONY: bench
bench: ## Gristmill beside its peers, measured; the table goes to bench/RESULTS.md
	bench/run

.PHONY: bench-quick
bench-quick: ## The same with few jobs and one run each, to see that it works
	bench/run --quick
