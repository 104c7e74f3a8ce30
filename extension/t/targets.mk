# The checks. Each installs what it needs (see t/prerequisites.py) and ends with its figures.
.DEFAULT_GOAL := all
PG_CONFIG ?= pg_config
CHECK = PG_CONFIG=$(PG_CONFIG) t/

.PHONY: test-checks test-regress test-differential test-accounting test-concurrency test-tpch \
	test-choice test-sqlsmith test-sources test-insert test-statistics test-assertions \
	test-sanitizers test-pg14 test-pg16 test-pg17 test-pg18 test-pg19 test-neighbours test-all

# The checks' own tests, and the picture's.
test-checks:
	cd t && python3 -m unittest -q
	cd bench && python3 -m unittest -q

# PostgreSQL's regression suite and isolation specs: only plan displays may differ from stock.
test-regress: all
	$(CHECK)regression_suite.py

# Random queries, batched against stock: 10,000 pairs. SEED=n repeats a run, PAIRS=n shortens it.
test-differential: all
	$(CHECK)differential_check.py $(if $(SEED),--seed $(SEED)) $(if $(PAIRS),--pairs $(PAIRS))

# Limits, statistics, cancels, memory: what a scan owes beside its rows.
test-accounting: all
	$(CHECK)accounting_check.py

# Scans under concurrent updates, deletes, inserts and vacuums.
test-concurrency: all
	$(CHECK)concurrency_check.py

# The 22 queries of TPC-H at scale factor 0.1, serial and parallel.
test-tpch: all
	$(CHECK)tpch_check.py

# Is the plan that the planner takes about as fast as the better of stock and batched?
test-choice: all
	PG_CONFIG=$(PG_CONFIG) bench/choice_check.py $(if $(SEED),--seed $(SEED)) $(if $(WRITE),--write)

# 2,000 queries of sqlsmith: no crash.
test-sqlsmith: all
	$(CHECK)sqlsmith_check.py $(if $(SEED),--seed $(SEED))

# The own suite and 2,000 random queries on tables of an access method with a source of its own, and on foreign tables.
test-sources: all
	$(CHECK)source_check.py

# Batched INSERTs beside readers, and across a crash.
test-insert: all
	$(CHECK)insert_check.py

# pg_stat_batchexec.
test-statistics: all
	$(CHECK)statistics_check.py

# The own suite, a slice of the differential check and the regression suite with assertions on.
test-assertions:
	$(CHECK)assertions_check.py

# The own suite, a slice of the differential check and others with the sanitizers of addresses and undefined behaviour.
test-sanitizers:
	$(CHECK)sanitizers_check.py $(if $(SEED),--seed $(SEED)) $(if $(PAIRS),--pairs $(PAIRS))

# Another release of Debian or Ubuntu in a chroot: build, install, own suite, registered sources, a slice of the differential check and the
# regression suite.
RELEASE_PAIRS = 2000
test-pg14 test-pg16 test-pg17 test-pg18: test-pg%:
	t/release_check.py $* --pairs $(RELEASE_PAIRS) --regress

# The same for 19, and the checks of accounting, concurrency, INSERTs, statistics and TPC-H in place of the regression suite.
test-pg19:
	t/release_check.py 19 --pairs $(RELEASE_PAIRS) --check accounting concurrency insert statistics tpch

# 16 other extensions on one server of PostgreSQL 18: equal answers, batched and not.
test-neighbours:
	t/release_check.py 18 --check neighbours

# Everything that one server version needs.
test-all: check test-checks test-regress test-differential test-accounting test-concurrency test-tpch test-sqlsmith test-sources test-insert test-statistics
