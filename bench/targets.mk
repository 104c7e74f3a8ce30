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

.PHONY: bench-scheduler
bench-scheduler: ## The scheduler on both stores beside its peer; the table goes to bench/RESULTS-scheduler.md
	bench/run-scheduler

.PHONY: bench-scheduler-quick
bench-scheduler-quick: ## The same with few jobs and one run each, to see that it works
	bench/run-scheduler --quick
