# Two commands for a fresh machine: `make demo` and `make test`. Both create .venv and reuse it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The constraints name the versions that are tested; torch's is the one whose build needs no GPU.
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable

.PHONY: demo test lint types tests clean

demo: $(VENV)/installed-demo
	$(BIN)/python examples/demo.py

test: lint types tests

lint: $(VENV)/installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports

types: $(VENV)/installed-dev
	$(BIN)/mypy

tests: $(VENV)/installed-dev
	$(BIN)/python -m pytest -n 2 --cov --cov-report=term-missing

$(VENV)/bin/pip:
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed-demo: pyproject.toml constraints.txt | $(VENV)/bin/pip
	$(INSTALL) ".[demo]"
	@touch $@

$(VENV)/installed-dev: pyproject.toml constraints.txt | $(VENV)/bin/pip
	$(INSTALL) ".[dev]"
	@touch $@

clean:
	rm -rf $(VENV) dist .pytest_cache .mypy_cache .ruff_cache .coverage
