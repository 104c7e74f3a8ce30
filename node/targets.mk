# The targets of the package for Node, for the top Makefile to include.

NODE_CPU := $(if $(filter aarch64,$(shell uname -m)),arm64,x64)
NODE_PLATFORM := linux-$(NODE_CPU)-gnu
NODE_ADDON := node/addons/gristmill-$(NODE_PLATFORM).node
NODE_PACKAGE := $(BUILD)/node
TSC := $(CURDIR)/web/node_modules/typescript/bin/tsc

# The runtime of flows, which scripts have, too: text within a function that has what `lib/flow/runtime.d.ts` names.
NODE_FLOWS := $(addprefix crates/runtime/src/shims/javascript/,memo.js flow.js)
NODE_FLOWS_NEED := { BaseError, Buffer, checkNames, describe, digest, inspect, MAY_BE_INEXACT, mark, newSeed }

.PHONY: node-modules
node-modules: $(WEB_MODULES)
	rm -rf node/dist
	node $(TSC) --project node
	{ echo 'export const makeFlows = ($(NODE_FLOWS_NEED)) => {'; cat $(NODE_FLOWS); \
	  echo 'return { Flow, FlowError, StepFailed, Suspension, TimeoutError };'; echo '};'; } >node/dist/flow/runtime.js

.PHONY: npm
npm: node-modules ## Build the package for Node, with the addon in it: build/node/gristmill-0.1.0.tgz
	$(CARGO) build --release --locked --package gristmill-node
	install -D --strip target/release/libgristmill_node.so $(NODE_ADDON)
	mkdir -p $(NODE_PACKAGE)
	trap 'rm -f node/LICENSE-APACHE node/LICENSE-MIT' EXIT; cp LICENSE-APACHE LICENSE-MIT node/ && \
	  (cd node && npm pack --silent --pack-destination ../$(NODE_PACKAGE) >/dev/null)

# The program as a package of its own, for `npx gristmill`. The package above has it as an optional dependency.
.PHONY: npm-program
npm-program: build ## Build the program's package for npm: build/node/gristmill-linux-x64-gnu-0.1.0.tgz
	rm -rf $(NODE_PACKAGE)/program
	install -D --strip target/release/gristmill $(NODE_PACKAGE)/program/bin/gristmill
	cp LICENSE-APACHE LICENSE-MIT $(NODE_PACKAGE)/program/
	sed 's/PLATFORM/$(NODE_PLATFORM)/; s/CPU/$(NODE_CPU)/' node/program/package.json >$(NODE_PACKAGE)/program/package.json
	cd $(NODE_PACKAGE)/program && npm pack --silent --pack-destination .. >/dev/null

# The library that the Rust tests' build has, with the features of that build.
.PHONY: node-test-package
node-test-package: node-modules
	$(CARGO) build --workspace --exclude gristmill-python --all-features --locked --lib --test cli
	install -D target/debug/libgristmill_node.so $(NODE_ADDON)

NODE_CLIENTS := $(BUILD)/node/clients
NODE_ENVIRONMENT = GRISTMILL=$(abspath target/debug/gristmill) NODE_CLIENTS=$(abspath $(NODE_CLIENTS)) RUNTIMES=$(abspath $(BUILD)/tools)

# Other people's libraries, within whose transactions or servers jobs are submitted. TypeORM asks for an older better-sqlite3, but
# not for PostgreSQL.
$(NODE_CLIENTS)/installed: node/targets.mk
	npm install --silent --no-audit --no-fund --ignore-scripts --legacy-peer-deps --prefix $(NODE_CLIENTS) pg@8 postgres@3 \
	  better-sqlite3@13 drizzle-orm@0.45 kysely@0.28 knex@3 typeorm@1 reflect-metadata@0.2 express@5 fastify@5 hono@4 @hono/node-server@1 \
	  @nestjs/common@11 @nestjs/core@11 @nestjs/platform-express@11 rxjs@7
	touch $@

.PHONY: test-node
test-node: node-test-package $(NODE_CLIENTS)/installed runtimes postgres ## The types, tests and examples of the package for Node
	node $(TSC) --project node/tests
	cd node && $(NODE_ENVIRONMENT) POSTGRES_BIN=$(lastword $(sort $(wildcard /usr/lib/postgresql/*/bin))) \
	  python3 ../bench/postgres/server.py NODE_STORE node --test --test-timeout=300000 tests/*.test.mjs

# Prisma's command line takes 300 MB, so that this is a check of its own. It makes the client of a schema without a database. It would
# download a program for that which it does not run: PRISMA_SCHEMA_ENGINE_BINARY stands for one that is there.
NODE_PRISMA := $(BUILD)/node/prisma
$(NODE_PRISMA)/dist/client.js: node/targets.mk node/tests/prisma/schema.prisma $(WEB_MODULES)
	mkdir -p $(NODE_PRISMA)
	echo '{"private": true, "type": "module"}' >$(NODE_PRISMA)/package.json
	npm install --silent --no-audit --no-fund --ignore-scripts --legacy-peer-deps --prefix $(NODE_PRISMA) \
	  prisma@7 @prisma/client@7 @prisma/adapter-pg@7
	cp node/tests/prisma/schema.prisma $(NODE_PRISMA)/
	cd $(NODE_PRISMA) && PRISMA_SCHEMA_ENGINE_BINARY=/bin/true node_modules/.bin/prisma generate --schema schema.prisma
	cd $(NODE_PRISMA) && node $(TSC) --noCheck --target es2022 --module nodenext --types node \
	  --typeRoots $(CURDIR)/web/node_modules/@types --outDir dist client/client.ts

.PHONY: test-node-prisma
test-node-prisma: node-test-package $(NODE_PRISMA)/dist/client.js postgres ## Submits within transactions of Prisma
	cd node && NODE_PRISMA=$(abspath $(NODE_PRISMA)) POSTGRES_BIN=$(lastword $(sort $(wildcard /usr/lib/postgresql/*/bin))) \
	  python3 ../bench/postgres/server.py NODE_STORE node --test --test-name-pattern=Prisma tests/postgres.test.mjs

.PHONY: test-npm
test-npm: npm npm-program web-program ## Install the tarballs into an empty folder, and run the program and docs/typescript.md there
	$(NODE_ENVIRONMENT) node/tests/installed.sh $(NODE_PACKAGE)/gristmill-0.1.0.tgz $(NODE_PACKAGE)/gristmill-$(NODE_PLATFORM)-0.1.0.tgz

.PHONY: bench-node
bench-node: npm postgres redis ## The package for Node beside queues of Node, written to node/bench/RESULTS.md
	$(MAKE) --no-print-directory bench-node-run FIGURES='--output node/bench/RESULTS.md'

.PHONY: bench-node-quick
bench-node-quick: npm postgres redis ## The same with few jobs and one run each, to see that it works
	$(MAKE) --no-print-directory bench-node-run FIGURES=--quick

.PHONY: bench-node-run
bench-node-run: runtimes
	POSTGRES_BIN=$(lastword $(sort $(wildcard /usr/lib/postgresql/*/bin))) \
	  python3 bench/postgres/server.py NODE_BENCH_URL $(BUILD)/tools/node24/bin/node node/bench/figures.mjs $(FIGURES)
