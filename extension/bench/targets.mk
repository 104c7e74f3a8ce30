# Measuring. `make bench` takes about an hour and writes bench/RESULTS.md.
.DEFAULT_GOAL := all
PG_CONFIG ?= pg_config

.PHONY: bench bench-quick bench-large bench-instructions bench-unchanged bench-tpch bench-clickbench bench-duckdb bench-expressions bench-dictionaries bench-sorts bench-widths bench-cold picture

bench: all
	PG_CONFIG=$(PG_CONFIG) bench/bench.py --write

# The 22 queries alone; SCALE_FACTOR=1 takes about five minutes. WORK_MEM=4MB is a new server's setting. With WRITE=1, this target and the next put their
# figures in their sections of bench/RESULTS.md and leave the others.
SCALE_FACTOR ?= 0.1
bench-tpch: all
	PG_CONFIG=$(PG_CONFIG) bench/bench.py --only TPC-H --rows 1000 --rounds $(or $(ROUNDS),3) --skip-unchanged --scale-factor $(SCALE_FACTOR) \
		$(if $(WORK_MEM),--work-mem $(WORK_MEM)) $(if $(WRITE),--write-section "$(if $(WORK_MEM),TPC-H with work_mem at $(WORK_MEM),TPC-H with joins)")

# ClickBench's 43 queries alone, on 5,000,000 generated rows: about ten minutes, with one round.
CLICKBENCH_ROWS ?= 5000000
bench-clickbench: all
	PG_CONFIG=$(PG_CONFIG) bench/bench.py --only ClickBench --rows 1000 --rounds $(or $(ROUNDS),1) --skip-unchanged --clickbench-rows $(CLICKBENCH_ROWS) $(if $(WRITE),--write-section ClickBench)

# Scans and aggregations of 10,000,000 rows; t/release_check.py runs this target, and bench-cold, on another PostgreSQL.
bench-large: all
	PG_CONFIG=$(PG_CONFIG) bench/bench.py --rows 10000000 --rounds $(or $(ROUNDS),3) --skip-nulls --skip-partitions --skip-inserts \
		--skip-tpch --skip-clickbench --skip-unchanged $(if $(WRITE),--write-section 'Ten million rows on PostgreSQL $(MAJORVERSION)')

# The library loaded but off, point selects, pgbench -S and TPC-B.
bench-unchanged: all
	PG_CONFIG=$(PG_CONFIG) bench/bench.py --only unchanged --rows 1000 --rounds $(or $(ROUNDS),9) $(if $(WRITE),--write-section 'What must not change')

# The same by instructions, which another load of the machine does not change; with WRITE=1 in their section of bench/RESULTS.md.
bench-instructions: all
	PG_CONFIG=$(PG_CONFIG) bench/instructions.py $(if $(WRITE),--write)

bench-quick: all
	PG_CONFIG=$(PG_CONFIG) bench/bench.py --rows 200000 --rounds 3 --skip-tpch --skip-clickbench --skip-unchanged

# TPC-H by DuckDB, from its own tables, beside both.
bench-duckdb: all
	PG_CONFIG=$(PG_CONFIG) bench/duckdb_beside.py --rounds $(or $(ROUNDS),3) --scale-factor $(SCALE_FACTOR) $(if $(WRITE),--write)

# Each expression that has a vector form, by column and by row.
bench-expressions: all
	PG_CONFIG=$(PG_CONFIG) bench/expressions.py $(if $(WRITE),--write)

# Filters of a column with a dictionary: for each entry, and for each row.
bench-dictionaries: all
	PG_CONFIG=$(PG_CONFIG) bench/encoded/dictionaries.py $(if $(WRITE),--write)

# Sorts of 5,000,000 rows.
bench-sorts: all
	PG_CONFIG=$(PG_CONFIG) bench/sorts.py --rounds $(or $(ROUNDS),3) $(if $(WORK_MEM),--work-mem $(WORK_MEM)) \
		$(if $(WRITE),--write 'Sorts on PostgreSQL $(MAJORVERSION)$(if $(WORK_MEM),$(comma) work_mem at $(WORK_MEM))')

# Batches of 1 to 291 rows.
bench-widths: all
	PG_CONFIG=$(PG_CONFIG) bench/widths.py --rounds $(or $(ROUNDS),5) $(if $(WRITE),--write)

# Tables that are not in shared buffers; as root, from the disk as well.
bench-cold: all
	PG_CONFIG=$(PG_CONFIG) bench/cold.py --rows 10000000 --rounds $(or $(ROUNDS),3) $(if $(WRITE),--write)

# bench/picture.svg, of the figures in bench/RESULTS.md: WRITE=1 makes it anew where it changes what the picture shows.
picture:
	bench/picture.py
