# Targets of the dashboard; included by the Makefile. The built page is committed, so that the program builds without
# Node: `make web` builds it anew after a change of web/ or of the API.

WEB_MODULES := web/node_modules/.package-lock.json
WEB_DIST := crates/server/dashboard
WEB_ENVIRONMENT = GRISTMILL=$(abspath target/debug/gristmill) CHROMIUM=$(or $(CHROMIUM),$(shell command -v chromium || command -v chromium-browser))

.PHONY: web
web: $(WEB_MODULES) ## Build the dashboard: types from the API's description, then the page
	$(CARGO) build --locked --package gristmill
	web/tests/describe.sh target/debug/gristmill $(BUILD)/web/openapi.json
	cd web && npm run --silent types && npm run --silent build

# The program of the Rust tests, built for one of these: `make test` does not build its dependencies again with other features.
.PHONY: web-program
web-program: $(WEB_MODULES) chromium
	$(CARGO) test --workspace --all-features --locked --test cli --no-run

# The types fit the API, and the committed page is the one that its sources give.
.PHONY: web-current
web-current: web-program
	web/tests/describe.sh target/debug/gristmill $(BUILD)/web/openapi.json
	cd web && npm run --silent types && npm run --silent check-format
	cd web && OUT=../$(BUILD)/web/dist npm run --silent build
	diff --brief --recursive $(WEB_DIST) $(BUILD)/web/dist || { echo 'error: web/ has changed: run make web' >&2; exit 1; }

.PHONY: test-web-short
test-web-short: web-current ## A part of the dashboard's tests: counts, markup, accessibility
	cd web && $(WEB_ENVIRONMENT) node --test tests/short.test.mjs

.PHONY: test-web
test-web: web-current postgres ## The dashboard's tests in Chromium, on both stores
	cd web && $(WEB_ENVIRONMENT) node --test --test-concurrency=1 tests/*.test.mjs
	cd web && $(WEB_ENVIRONMENT) POSTGRES_BIN=$(lastword $(sort $(wildcard /usr/lib/postgresql/*/bin))) \
	  python3 ../bench/postgres/server.py WEB_STORE node --test --test-concurrency=1 tests/*.test.mjs

.PHONY: shots
shots: web-program ## Take pictures of the dashboard's pages, below build/web/shots
	cd web && $(WEB_ENVIRONMENT) node tests/shots.mjs ../$(BUILD)/web/shots

.PHONY: pictures
pictures: web-program ## Take the pictures of docs/dashboard.md
	cd web && $(WEB_ENVIRONMENT) node tests/pictures.mjs ../docs/images

.PHONY: bench-dashboard
bench-dashboard: build $(WEB_MODULES) chromium postgres ## The dashboard and its signals with 10,000,000 jobs; the table goes to bench/RESULTS-dashboard.md
	bench/run-dashboard

.PHONY: bench-dashboard-quick
bench-dashboard-quick: build $(WEB_MODULES) chromium postgres ## The same with few jobs, to see that it works
	bench/run-dashboard --quick

$(WEB_MODULES): web/package-lock.json
	cd web && npm ci --silent --no-audit --no-fund --ignore-scripts
	touch $@

.PHONY: chromium
chromium:
	@command -v chromium chromium-browser >/dev/null || { [ $$(id -u) = 0 ] && sudo= || sudo=sudo; \
	  $$sudo apt-get update -qq && $$sudo apt-get install -y -qq --no-install-recommends chromium; }
