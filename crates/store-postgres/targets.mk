# The targets of the PostgreSQL store.

POOLERS ?= transaction session pgpool

.PHONY: test-poolers
test-poolers: ## The store's suite and a fleet under kills, through PgBouncer and Pgpool-II: make test-poolers [POOLERS=session] [CYCLES=20]
	@PATH=$$PATH:/usr/sbin; which pgbouncer pgpool >/dev/null || { echo "Install poolers: apt-get install pgbouncer pgpool2"; exit 2; }
	set -e; for pooler in $(POOLERS); do \
		echo "through $$pooler"; \
		GRISTMILL_TEST_POOLER=$$pooler $(CARGO) test --locked --package gristmill-store-postgres --test store_postgres -- conformance:: --test-threads=4; \
		POOLER=$$pooler KILL=server,agent,worker,database,pooler STORE=postgres CYCLES=$(or $(CYCLES),20) LEASE=15s \
		  $(CARGO) test --locked --package gristmill --test cli -- chaos::fleet --nocapture --test-threads 1; \
	done
