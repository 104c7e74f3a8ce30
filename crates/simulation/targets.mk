# The targets of the simulation.

HOURS ?= 300

.PHONY: simulate
simulate: ## Simulate a fleet under faults in virtual time: make simulate [HOURS=300] [SEED=N]
	$(CARGO) run --release --locked --package gristmill-simulation -- --hours $(HOURS) --seed $(or $(SEED),1)

.PHONY: simulate-mutations
simulate-mutations: ## Put bugs in by hand, one after the other, and look whether the simulation finds each
	crates/simulation/mutations/run
