# Targets of the packages: what a distribution, a cluster or a monitoring system takes; included by the Makefile.

PACKAGES := $(BUILD)/packaging
PROGRAM ?= target/release/gristmill
HELM_VERSION := v3.18.6
HELM := $(abspath $(PACKAGES)/bin/helm)
PROMTOOL := $(PACKAGES)/prometheus/usr/bin/promtool

.PHONY: deb
deb: $(PROGRAM) ## Build the Debian package of the program, below build/packaging, and check it
	packaging/tests/package.sh $$(packaging/debian/build.sh $(PROGRAM) $(PACKAGES))

target/release/gristmill:
	$(MAKE) build

.PHONY: test-packaging
test-packaging: deb test-alerts test-chart ## Check the Debian package, the units, the alert rules and the chart

.PHONY: test-alerts
test-alerts: $(PROMTOOL) ## Check the alert rules with promtool: each fires on its fault
	$(PROMTOOL) check rules packaging/prometheus/gristmill.rules.yml
	$(PROMTOOL) test rules packaging/prometheus/gristmill.rules.test.yml

.PHONY: test-chart
test-chart: $(PROGRAM) $(HELM) $(PACKAGES)/venv/installed ## Render the chart with helm, and check it, the compose file and the units
	web/tests/describe.sh $(PROGRAM) $(PACKAGES)/openapi.json
	PROGRAM=$(abspath $(PROGRAM)) HELM=$(HELM) OPENAPI=$(abspath $(PACKAGES)/openapi.json) \
	  $(PACKAGES)/venv/bin/python packaging/tests/test_packaging.py

.PHONY: test-deb-install
test-deb-install: deb ## Install the Debian package in a new Debian, serve and remove it; needs root
	@command -v debootstrap >/dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends debootstrap; }
	packaging/tests/install.sh $$(ls -t $(PACKAGES)/gristmill_*.deb | head -n 1) $(PACKAGES)/debian

.PHONY: deb-extension
deb-extension: ## Build the Debian package of the extension for PostgreSQL 15, below build/packaging
	$(MAKE) -C extension prerequisites
	packaging/debian/build_extension.sh /usr/lib/postgresql/15/bin/pg_config $(PACKAGES)

.PHONY: test-deb-extension
test-deb-extension: deb-extension ## Install the package of the extension in a new Debian, aggregate in batches and remove it; needs root
	@command -v debootstrap >/dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends debootstrap; }
	packaging/tests/install_extension.sh $$(ls -t $(PACKAGES)/postgresql-15-pg-batchexec_*.deb | head -n 1) $(PACKAGES)/debian-postgresql

# The program alone: Debian's package would start a server.
$(PROMTOOL):
	mkdir -p $(PACKAGES)/prometheus
	cd $(PACKAGES)/prometheus && { apt-get download prometheus 2>/dev/null || { apt-get update -qq && apt-get download prometheus; }; }
	dpkg-deb --extract $(PACKAGES)/prometheus/prometheus_*.deb $(PACKAGES)/prometheus

$(HELM):
	GOBIN=$(dir $(HELM)) go install helm.sh/helm/v3/cmd/helm@$(HELM_VERSION)

$(PACKAGES)/venv/installed: packaging/requirements/packaging-tests.txt
	python3 -m venv $(PACKAGES)/venv
	$(PACKAGES)/venv/bin/python -m pip install --quiet --require-hashes --requirement packaging/requirements/packaging-tests.txt
	touch $@

.PHONY: test-neighbours
test-neighbours: ## Gristmill beside Prometheus, OTLP, PgBouncer, a publication, tools of SQLite, Litestream, Slurm, MCP's inspector, generated clients and OpenAI's package: [NEIGHBOURS="collector"]
	$(CARGO) build --locked --package gristmill
	GRISTMILL=$(abspath target/debug/gristmill) packaging/neighbours/run $(NEIGHBOURS)
