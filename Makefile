# A fresh clone needs Python >= 3.11, make and the package registries.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
# Tests start hundreds of processes: without bytecode on disk each compiles its imports for seconds.
export PYTHONDONTWRITEBYTECODE :=

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Programs in tools/, which no distribution contains.
TOOL = PYTHONPATH=tools $(BIN)/python -m trellis_tools
UV := $(BIN)/uv
STAMP := $(VENV)/.installed
# Installs the locks. The dev group pins the same version, so that the sync keeps it.
UV_VERSION := 0.13.8
# They run in environments of their own, so that no lock contains its packages.
PIP_AUDIT_VERSION := 2.10.1
CHECKOV_VERSION := 3.3.30
HAS_NODE := command -v node >/dev/null && command -v npm >/dev/null

.PHONY: help install demo page images release lint language check test audit checkov test-all flaky sabotage fuzz chaos soak bench docs generate verify lock format clean

help: ## List all targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  \033[36m%-10s\033[0m %s\n", $$1, $$2}'

install: $(STAMP) ## Create .venv with all dependencies

$(STAMP): requirements.lock requirements-dev.lock pyproject.toml devtools/pyproject.toml Makefile
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else f"Trellis needs Python >= 3.11; {sys.executable} is {v.major}.{v.minor}: set PYTHON=/path/to/python3.11")'
	@echo "installing requirements-dev.lock into $(VENV) ..." >&2
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@test "$$($(UV) --version 2>/dev/null | cut -d' ' -f2)" = "$(UV_VERSION)" || $(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	@$(UV) pip sync --quiet --compile-bytecode --python $(BIN)/python --require-hashes requirements-dev.lock
	@$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable . --editable devtools
	@touch $@

demo: install ## Run a demo: a real control plane, 20 simulated nodes, the services
	@$(BIN)/trellis demo $(ARGS)

page: install ## Build the console's web page, for this checkout and for images (node, npm)
	@$(BIN)/trellis dev page

images: install ## Build both images, with SBOM and licences, into build/images (root, Linux)
	@$(BIN)/trellis dev image --export build/images $(ARGS)

release: install ## Build a release of the commit; with REGISTRY= KEY=cosign.key push, sign and verify it: VERSION= PASSWORD_FILE=
	@$(TOOL).release $(VERSION) $(if $(REGISTRY),--registry $(REGISTRY)) $(if $(KEY),--key $(KEY)) $(if $(PASSWORD_FILE),--password-file $(PASSWORD_FILE)) $(ARGS)

lint: install ## Check lint, types, import contracts and language
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/mypy deploy/images/*.py
	@$(BIN)/mypy --config-file tests/mypy.ini
	@PYTHONPATH=tools $(BIN)/lint-imports --no-cache
	@$(TOOL).language .
	@if $(HAS_NODE); then $(BIN)/trellis dev page --check; else echo "node or npm not found: the console's page is neither built nor checked" >&2; fi

language: install ## Check texts with Vale: all, or ARGS="PATH … --area AREA"; counts: ARGS=--counts
	@$(TOOL).language . $(ARGS)

check: lint ## Run before each commit: lint, and the fast unit and contract tests
	@$(BIN)/python tests/units.py --quick

audit: install ## Report known vulnerabilities of locked packages; needs PyPI, not a mirror without its vulnerability data
	@for lock in requirements-services.lock requirements-installer.lock requirements-images.lock requirements-dev.lock; do \
		echo "$$lock" >&2; \
		$(UV) tool run --quiet --python $(BIN)/python pip-audit@$(PIP_AUDIT_VERSION) --strict --disable-pip --require-hashes -r $$lock || exit 1; \
	done

checkov: install ## Check the rendered chart for insecure settings with checkov; needs PyPI
	@mkdir -p build/checkov
	@for mode in services bundle; do \
		$(BIN)/helm template trellis deploy/helm/trellis --namespace trellis-system --set mode=$$mode,jaeger.enabled=true \
			--set services.console.enabled=true,defaultShim.sha256.amd64=$$(printf '%064d' 0) > build/checkov/$$mode.yaml || exit 1; \
	done
	@$(UV) tool run --quiet --python $(BIN)/python checkov@$(CHECKOV_VERSION) --framework kubernetes --quiet --compact \
		--skip-download --soft-fail --output json --directory build/checkov > build/checkov/report.json
	@$(TOOL).checkov deploy/helm/checkov.yaml build/checkov/report.json

test: lint ## Run all that CI runs: lint, unit and contract tests, each service with a real nats-server and kube-apiserver
	@$(BIN)/python tests/units.py $(UNITS)
	@$(BIN)/trellis dev tools --jaeger
	@if $(HAS_NODE) && { command -v chromium || command -v apt-get; } >/dev/null; then $(BIN)/trellis dev page --browser; else \
		echo "node, npm or Chromium not found: the console's page is not tested in a browser" >&2; fi
	@$(BIN)/python tests/integration/run.py

test-all: install ## Run what `make test` leaves out: real nodes (root, Linux), wadm, other operators, chaos, fuzz (hours); ARGS="--only TEXT --record"
	@$(BIN)/python tests/e2e/run.py $(ARGS)

flaky: install ## Run one test many times under CPU load: TEST=tests/…::test_… RUNS=50
	@$(BIN)/python tests/flaky.py $(or $(RUNS),50) $(TEST)

sabotage: install ## Mutate the product line by line; a test must fail each time: ARGS="PART OF A NAME"
	@$(BIN)/python tests/sabotage/run.py $(ARGS)

fuzz: install ## Fuzz every parser with invalid input, by seed; ARGS="--cases 1000000 --seed N --jobs N --only TARGET"
	@$(BIN)/python tests/fuzz/run.py $(ARGS)

chaos: install ## Inject faults into the whole system, by seed: SEED= RUNS= SECONDS=; ARGS="--show" prints a schedule
	@$(BIN)/python tests/chaos/run.py $(if $(SEED),--seed $(SEED)) $(if $(RUNS),--runs $(RUNS)) $(if $(SECONDS),--seconds $(SECONDS)) $(ARGS)

soak: install ## Run the whole system for 30 minutes; fails if a process grows: SECONDS= SEED=; ARGS="--record"
	@$(BIN)/python tests/chaos/soak.py $(if $(SEED),--seed $(SEED)) $(if $(SECONDS),--seconds $(SECONDS)) $(ARGS)

bench: install ## Run all benchmarks and print the machine that they run on
	@$(BIN)/python bench/provision.py $(ARGS)
	@$(BIN)/python bench/bus.py
	@$(BIN)/python bench/watch.py
	@$(BIN)/python bench/takeover.py
	@$(BIN)/python bench/installer.py
	@$(BIN)/python bench/rollout.py
	@$(BIN)/python bench/hosts.py
	@$(BIN)/python bench/v2.py
	@$(BIN)/python bench/v2_composer.py
	@$(BIN)/python bench/workloads.py
	@$(BIN)/python bench/workload_events.py
	@$(BIN)/python bench/reflect.py
	@$(BIN)/python bench/applications.py
	@$(BIN)/python bench/wadm_beside.py
	@$(BIN)/python bench/secret_requests.py
	@$(BIN)/python bench/controllers/wake.py
	@$(BIN)/python bench/controllers/ring.py
	@$(BIN)/python bench/controllers/policies.py
	@$(BIN)/python bench/controllers/neighbours.py
	@$(BIN)/python bench/real_node.py
	@$(BIN)/python bench/rollout_requests.py
	@$(BIN)/python bench/installation.py
	@$(BIN)/python bench/storage.py
	@$(BIN)/python bench/plan.py
	@$(BIN)/python bench/kube_client.py
	@$(BIN)/python bench/console_page.py
	@$(BIN)/python bench/load/run.py --share 1/8

docs: install ## Build docs/ as a site in build/site; a broken link fails the build
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict # not with --quiet, which ignores warnings

generate: install ## Write the generated files (event schemas, tables, NATS users, the chart's README, reference pages)
	@$(TOOL).events.generate deploy/events
	@$(TOOL).events.table docs/bus.md
	@$(TOOL).bus_users deploy/nats
	@$(TOOL).crds.generate deploy/helm/trellis/definitions
	@$(TOOL).crds.generate --schemas deploy/schemas # reject unknown fields, which the API server prunes by the CRDs
	@$(TOOL).monitoring.generate .
	@$(TOOL).services .
	@$(TOOL).chart .
	@$(TOOL).chart_readme .
	@$(TOOL).base.generate deploy/base
	@$(TOOL).reference docs/reference deploy/rbac
	@$(BIN)/python tests/chaos/record.py docs/reliability.md
	@$(BIN)/python tests/fuzz/record.py docs/reliability.md
	@$(BIN)/python tests/e2e/record.py docs/reliability.md
	@$(BIN)/python bench/load/page.py docs/operations/scale.md
	@$(BIN)/python tests/sabotage/run.py --page

verify: install ## Check that generated files are what `make generate` writes
	@$(TOOL).events.generate --check deploy/events
	@$(TOOL).events.table --check docs/bus.md
	@$(TOOL).bus_users --check deploy/nats
	@$(TOOL).crds.generate --check deploy/helm/trellis/definitions
	@$(TOOL).crds.generate --schemas --check deploy/schemas
	@$(TOOL).monitoring.generate --check .
	@$(TOOL).services --check .
	@$(TOOL).chart --check .
	@$(TOOL).chart_readme --check .
	@$(TOOL).base.generate --check deploy/base
	@$(TOOL).reference --check docs/reference deploy/rbac
	@$(BIN)/python tests/chaos/record.py --check docs/reliability.md
	@$(BIN)/python tests/fuzz/record.py --check docs/reliability.md
	@$(BIN)/python tests/e2e/record.py --check docs/reliability.md
	@$(BIN)/python bench/load/page.py --check docs/operations/scale.md

format: install ## Format, and apply the fixes of ruff
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

lock: ## Resolve the dependencies into the hashed locks; newest versions: ARGS=--upgrade
	@$(UV) pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --no-annotate --python-version 3.11 pyproject.toml -o requirements.lock $(ARGS)
	@$(UV) pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --no-annotate --python-version 3.11 pyproject.toml --extra controllers -o requirements-services.lock $(ARGS)
	@$(UV) pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --no-annotate --python-version 3.11 pyproject.toml devtools/pyproject.toml --no-emit-package trellis-wasm --all-extras --group dev -o requirements-dev.lock $(ARGS)
	@$(UV) pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --no-annotate --python-version 3.11 --group installer -o requirements-installer.lock $(ARGS)
	@$(UV) pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --no-annotate --python-version 3.11 --group images -o requirements-images.lock $(ARGS)

clean: ## Remove .venv and caches of this checkout
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis dist build
