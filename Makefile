# Two commands on a fresh clone, with Python 3.11 or newer and make: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help demo test lint types examples controls reference clean

help:
	@echo "make demo      run the shop: orders, faults, kills, balanced books"
	@echo "make test      run all tests"
	@echo "make lint types examples controls    what CI runs besides"

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

demo: $(VENV)/.demo
	$(BIN)/arriero demo

test: $(VENV)/.test
	$(BIN)/python -m pytest -n auto

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.test
	$(BIN)/mypy

examples: $(VENV)/.test
	$(BIN)/python examples/quickstart/quickstart.py
	$(BIN)/python examples/operator_night/run.py

# What the pages take from the code; a test compares.
reference: $(VENV)/.demo
	$(BIN)/python docs/reference/generate.py

# Broken on purpose: each must be found out, with exit code 1.
controls: $(VENV)/.demo
	for broken in dedup refund fence; do \
	  $(BIN)/arriero demo --orders 150 --break $$broken; code=$$?; \
	  test $$code -eq 1 || { echo "demo --break $$broken ended with $$code instead of 1"; exit 1; }; \
	done

clean:
	rm -rf $(VENV) .hypothesis .mypy_cache .ruff_cache .bench
