# Targets of the program; included by the Makefile.

.PHONY: chaos-fleet
chaos-fleet: build runtimes ## kill -9 of servers, agents, workers and PostgreSQL under load: make chaos-fleet [CYCLES=100] [POOLER=transaction]
	CYCLES=$(or $(CYCLES),100) LEASE=15s $(CARGO) test --release --locked --package gristmill --test cli -- chaos::fleet --nocapture --test-threads 1

.PHONY: chaos-database
chaos-database: build runtimes postgres ## Crash PostgreSQL alone under a fleet's load, 200 cycles
	STORE=postgres KILL=database CYCLES=200 LEASE=15s \
	  $(CARGO) test --release --locked --package gristmill --test cli -- chaos::fleet --nocapture --test-threads 1

.PHONY: test-corruption
test-corruption: ## Random bit flips in 1,000 SQLite files: no wrong value, no hang, no panic; FLIP_SEED=7 tries others
	GRISTMILL_FLIPPED_FILES=1000 GRISTMILL_FLIP_SEED=$${FLIP_SEED:-1} $(CARGO) test --release --locked \
	  --package gristmill-store-sqlite --test store_sqlite -- flipped_bits --nocapture

.PHONY: power-cuts
power-cuts: build runtimes postgres ## Cut the power of a disk with PostgreSQL, 200 times, as root: make power-cuts [CUTS=N] [SEED=N]
	@test "$$(id -u)" = 0 || { echo "make power-cuts mounts disks: run it as root"; exit 2; }
	@which qemu-storage-daemon mkfs.ext4 losetup > /dev/null || { \
	  echo "Install what logs a disk: apt-get install qemu-system-common e2fsprogs mount"; exit 2; }
	CUTS=$(or $(CUTS),200) SEED=$(or $(SEED),1) $(CARGO) test --release --locked --package gristmill --test cli -- \
	  power_cuts:: --ignored --nocapture --test-threads 1
