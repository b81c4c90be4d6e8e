# One command per chore. `make demo` and `make test` are the two to know.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
RUN := $(VENV)/bin/
READY := $(VENV)/.ready

.PHONY: setup demo test test-all check format docs bench evidence clean

setup: $(READY)  ## a virtual environment with everything that the tests need

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(RUN)pip install --quiet --constraint constraints.txt torch
	$(RUN)pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: setup  ## SDG beside the sum, on a problem small enough to follow by hand
	$(RUN)python examples/two_clinics.py

check: setup  ## lint, format and types
	$(RUN)ruff check .
	$(RUN)ruff format --check .
	$(RUN)mypy

format: setup
	$(RUN)ruff check --fix .
	$(RUN)ruff format .

test: check  ## lint, types and the tests
	$(RUN)python -m pytest -m "not slow" --cov --cov-report=term

test-all: check  ## the slow tests too
	$(RUN)python -m pytest --cov --cov-report=term

docs: setup  ## the documentation as a site, warnings as errors
	$(RUN)sphinx-build --fail-on-warning --keep-going -q docs docs/_build/html

bench: setup  ## speed of the solver, a quarter of an hour; writes bench/records
	$(RUN)python bench/solver.py
	$(RUN)python bench/threads.py

evidence: setup  ## measures again what docs/mathematics states
	for script in docs/evidence/[a-z]*.py; do $(RUN)python $$script || exit 1; done

clean:
	rm -rf $(VENV) docs/_build .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage
