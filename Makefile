# Two commands for a fresh machine: `make demo` and `make test`. Both create .venv and reuse it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TENSORFLOW := .venv-tensorflow
KERAS_TESTS := tests/keras tests/peers/test_keras.py tests/test_agreement.py tests/test_tasks.py
# The constraints name the versions that are tested; torch's is the one whose build needs no GPU.
INSTALL := pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable

.PHONY: demo test test-all lint types tests test-slow test-tensorflow clean

demo: $(VENV)/installed-demo
	$(BIN)/python examples/demo.py

test: lint types tests

lint: $(VENV)/installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports

types: $(VENV)/installed-dev
	$(BIN)/mypy

# The quick tests. `make test-all` adds those marked slow, the Keras tests on JAX, and the coverage.
tests: $(VENV)/installed-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m "not slow" --durations=10 \
		--cov --cov-report= --cov-fail-under=0

test-all: test test-slow

test-slow: $(VENV)/installed-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m slow --dist worksteal --durations=20
	OMP_NUM_THREADS=1 KERAS_BACKEND=jax $(BIN)/python -m pytest -n 2 -k keras $(KERAS_TESTS) \
		--cov --cov-append --cov-report=term-missing

# TensorFlow is large and stays in an environment of its own.
test-tensorflow: $(TENSORFLOW)/installed
	KERAS_BACKEND=tensorflow $(TENSORFLOW)/bin/python -m pytest -k keras $(KERAS_TESTS)

$(VENV)/bin/pip:
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed-demo: pyproject.toml constraints.txt | $(VENV)/bin/pip
	$(BIN)/$(INSTALL) ".[demo]"
	@touch $@

$(VENV)/installed-dev: pyproject.toml constraints.txt | $(VENV)/bin/pip
	$(BIN)/$(INSTALL) ".[dev]"
	@touch $@

$(TENSORFLOW)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(TENSORFLOW)
	$(TENSORFLOW)/bin/$(INSTALL) ".[test-tensorflow]"
	@touch $@

clean:
	rm -rf $(VENV) $(TENSORFLOW) dist .pytest_cache .mypy_cache .ruff_cache .coverage
