# Two commands for a fresh machine: `make demo` and `make test`. Both create .venv and reuse it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
OLDEST := .venv-oldest
TENSORFLOW := .venv-tensorflow
KERAS_TESTS := tests/keras tests/peers/test_keras.py tests/test_agreement.py tests/test_tasks.py
# The tests of what needs NumPy, SciPy, scikit-learn, pandas and the boosting libraries. Left out:
# - scikit-learn 1.6 gives its own check of weights other labels for repeated rows (corrected in 1.7);
# - a test compares with scipy.stats.bootstrap(rng=), which SciPy has from 1.15 on;
# - a test expects equal bits, but NumPy 1.26 rounds a product differently by the number of its rows.
OLDEST_TESTS := tests/core tests/recipe tests/boosting tests/tabular tests/report tests/cli \
	tests/benchmark tests/torch tests/test_sklearn.py tests/test_torchmetrics.py tests/test_agreement.py \
	tests/peers/test_imblearn.py \
	-k "not (test_boosting_estimators and equivalence) and not bootstrap_of_the_rows \
	and not depend_on_the_parts"
INSTALL := pip install --quiet --disable-pip-version-check
# The constraints name the versions that are tested; torch's is the one whose build needs no GPU.
EDITABLE := $(INSTALL) --constraint constraints.txt --editable
# One thread per process: the tests run in two processes, and threads would only compete.
RUN := OMP_NUM_THREADS=1

.PHONY: demo docs test test-all lint types tests test-slow test-oldest test-sdist test-tensorflow release-check clean

# Most of the time is the installation of torch. --no-compile skips the modules that are never imported.
demo: $(VENV)/installed-demo
	$(RUN) $(BIN)/python examples/demo.py

# The documentation, in site/. A broken link, an unknown name or a notebook that fails is an error.
docs: $(VENV)/installed-dev
	$(RUN) NO_MKDOCS_2_WARNING=1 KERAS_BACKEND=torch $(BIN)/mkdocs build --strict --quiet

test: lint types tests

lint: $(VENV)/installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/codespell

types: $(VENV)/installed-dev
	$(BIN)/mypy

# The quick tests. Tests of one group share costly fixtures and run in one process. `make test-all` adds the
# slow ones, the Keras tests on JAX, and the coverage (`COVERAGE=yes`), which costs time.
tests: $(VENV)/installed-dev
	$(RUN) $(BIN)/python -m pytest -n 2 --dist loadgroup -m "not slow" --durations=10 \
		$(if $(COVERAGE),--cov --cov-report= --cov-fail-under=0)

test-all:
	$(MAKE) test test-slow COVERAGE=yes

test-slow: $(VENV)/installed-dev
	$(RUN) $(BIN)/python -m pytest -n 2 -m slow --dist worksteal --durations=20
	$(RUN) KERAS_BACKEND=jax $(BIN)/python -m pytest -n 2 -k keras $(KERAS_TESTS) \
		$(if $(COVERAGE),--cov --cov-append --cov-report=term-missing)

# The oldest supported versions of the libraries, in an environment of their own.
test-oldest: $(OLDEST)/installed
	$(RUN) $(OLDEST)/bin/python -m pytest -n 2 -m "not slow" $(OLDEST_TESTS)

# The quick tests in the unpacked sdist. PYTHONPATH stands before the editable installation.
test-sdist: $(VENV)/installed-dev
	folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && export PATH="$$PWD/$(BIN):$$PATH" && \
		python -m build --sdist --no-isolation --outdir "$$folder" && cd "$$folder" && \
		tar -xzf *.tar.gz --strip-components 1 && export PYTHONPATH="$$folder/src" && \
		python -c "import anyloss; print('tests of', anyloss.__file__)" && \
		$(RUN) python -m pytest -n 2 -m "not slow"

# What would be uploaded, in dist/, and each extra of it in an environment of its own. It takes minutes.
release-check: $(VENV)/installed-dev
	$(RUN) $(BIN)/python tools/release_check.py $(EXTRAS)

# TensorFlow is large and stays in an environment of its own.
test-tensorflow: $(TENSORFLOW)/installed
	KERAS_BACKEND=tensorflow $(TENSORFLOW)/bin/python -m pytest -k keras $(KERAS_TESTS)

$(VENV)/bin/pip:
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed-demo: pyproject.toml constraints.txt | $(VENV)/bin/pip
	$(BIN)/$(EDITABLE) ".[demo]" --no-compile
	@touch $@

$(VENV)/installed-dev: pyproject.toml constraints.txt | $(VENV)/bin/pip
	$(BIN)/$(EDITABLE) ".[dev]"
	@touch $@

$(OLDEST)/installed: pyproject.toml constraints-oldest.txt
	$(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/$(INSTALL) --constraint constraints-oldest.txt --editable ".[test-oldest]"
	@touch $@

$(TENSORFLOW)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(TENSORFLOW)
	$(TENSORFLOW)/bin/$(EDITABLE) ".[test-tensorflow]"
	@touch $@

clean:
	rm -rf $(VENV) $(OLDEST) $(TENSORFLOW) .venv-peers dist site .pytest_cache .mypy_cache .ruff_cache .coverage
