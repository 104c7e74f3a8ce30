# Measuring. `make bench` takes about ten minutes and writes bench/RESULTS.md.
.DEFAULT_GOAL := all
PG_CONFIG ?= pg_config

.PHONY: bench bench-quick bench-tpch

bench: all
	PG_CONFIG=$(PG_CONFIG) bench/bench.py --write

# The 22 queries alone; SCALE_FACTOR=1 takes about ten minutes.
SCALE_FACTOR ?= 0.1
bench-tpch: all
	PG_CONFIG=$(PG_CONFIG) bench/bench.py --only TPC-H --rows 1000 --rounds 3 --skip-unchanged --scale-factor $(SCALE_FACTOR)

bench-quick: all
	PG_CONFIG=$(PG_CONFIG) bench/bench.py --rows 200000 --rounds 3 --skip-tpch --skip-unchanged
