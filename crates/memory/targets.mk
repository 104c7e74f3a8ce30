# The targets of the memory crate.

.PHONY: test-replay
test-replay: ## Memory on the recorded index and model service: make test-replay REPLAY=DIR
	@test -n "$(REPLAY)" || { echo "Say where the recordings are: make test-replay REPLAY=DIR"; exit 2; }
	GRISTMILL_REPLAY=$(abspath $(REPLAY)) $(CARGO) test --release --locked --package gristmill-memory --test 'replay_*' -- --nocapture
