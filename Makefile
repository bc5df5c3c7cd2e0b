# `make check` and `make test` are all that a fresh machine with Python 3.11 or later needs.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed

.PHONY: check test lint bench kills audit trust demo clean

check: $(STAMP)
	@for example in examples/*.py examples/*/; do \
		$(BIN)/triu check $$example; status=$$?; echo; \
		test $$status -le 1 || exit $$status; \
	done

test: check
	$(BIN)/pytest -n auto

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright

bench: $(STAMP)
	$(BIN)/python benchmarks/bench.py

# The kill matrix that is committed, and read as a diff.
kills: $(STAMP)
	$(BIN)/triu mutants --table reference/mutants/kills.json --markdown docs/kill-matrix.md > /dev/null

# What holds in the lessons, and where each claim comes from; committed too.
audit: $(STAMP)
	$(BIN)/triu audit --quiet --markdown docs/lesson-audit.md --coverage docs/coverage.md

# Mutants over 20 seeds, correct implementations over 50, and how often the right mistake is named: for docs/trust.md.
trust: $(STAMP)
	$(BIN)/python benchmarks/trust.py

# An example of each report, in build/demo/.  What fails in it is meant to.
demo: $(STAMP)
	$(BIN)/python benchmarks/demo.py

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "triu needs Python 3.11 or later; set PYTHON=... (found: $$($(PYTHON) --version 2>&1))"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip -c constraints.txt
	$(BIN)/python -m pip install --quiet --editable '.[dev,cluster]' -c constraints.txt
	@touch $(STAMP)

clean:
	rm -rf $(VENV) build dist *.egg-info
