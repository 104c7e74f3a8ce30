# The targets of the PostgreSQL store.

POOLERS ?= transaction session pgpool

.PHONY: test-poolers
test-poolers: ## The store's suite through PgBouncer and Pgpool-II (apt-get install pgbouncer pgpool2): make test-poolers [POOLERS=session]
	set -e; for pooler in $(POOLERS); do \
		echo "through $$pooler"; \
		GRISTMILL_TEST_POOLER=$$pooler $(CARGO) test --locked --package gristmill-store-postgres --test conformance -- --test-threads=4; \
	done
