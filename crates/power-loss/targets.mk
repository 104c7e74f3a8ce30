# The targets of power loss.

IMAGES ?= 100000

.PHONY: power-loss
power-loss: ## Cut the power at 100,000 moments of SQLite workloads: make power-loss [IMAGES=N] [SEED=N]
	POWER_LOSS_IMAGES=$(IMAGES) $(if $(SEED),POWER_LOSS_SEED=$(SEED)) $(CARGO) test --release --locked \
	  --package gristmill-power-loss --test power_loss -- acknowledged_data --nocapture

.PHONY: power-loss-replay
power-loss-replay: ## Make one image of a failed recording again: make power-loss-replay RECORDING=FILE SEED=N
	@test -n "$(RECORDING)" -a -n "$(SEED)" || { echo "Give the RECORDING and the SEED that the failure printed"; exit 2; }
	$(CARGO) run --release --locked --package gristmill-power-loss --example replay -- $(abspath $(RECORDING)) $(SEED)
