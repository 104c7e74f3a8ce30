# Measuring. `make bench` takes about ten minutes and writes bench/RESULTS.md.
.DEFAULT_GOAL := all
PG_CONFIG ?= pg_config

.PHONY: bench bench-quick

bench: all
	PG_CONFIG=$(PG_CONFIG) bench/bench.py --write

bench-quick: all
	PG_CONFIG=$(PG_CONFIG) bench/bench.py --rows 200000 --rounds 3 --skip-tpch --skip-unchanged
