PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: install demo test test-slow fuzz lint types contracts format bench clean

install: $(STAMP)

$(STAMP): pyproject.toml setup.py
	$(PYTHON) -c 'import sys; sys.exit("vault-memory needs Python 3.11 or newer: make PYTHON=python3.11 ...") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $(STAMP)

demo: install
	$(BIN)/vault-memory demo

test: install
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m 'not slow'

test-slow: install
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m slow --timeout 1800

# As many other git histories as you like against a rebuild, none of them twice: make fuzz N=2000 (0.4 s each, quiet)
fuzz: install
	VAULT_MEMORY_FUZZ=$(or $(N),500) $(BIN)/python -m pytest -s vault_memory_tests/integration/ingest/test_histories.py

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell

types: install
	$(BIN)/basedpyright

contracts: install
	$(BIN)/lint-imports

format: install
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: install
	@for file in benchmarks/*.py; do echo "== $$file"; $(BIN)/python $$file || exit 1; done

clean:
	rm -rf $(VENV) build dist *.egg-info
