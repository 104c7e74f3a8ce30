# Targets of the program; included by the Makefile.

.PHONY: chaos-fleet
chaos-fleet: build runtimes ## kill -9 of servers, agents, workers and PostgreSQL under load, 100 cycles a store
	CYCLES=100 LEASE=15s $(CARGO) test --release --locked --package gristmill --test fleet_chaos -- --nocapture
