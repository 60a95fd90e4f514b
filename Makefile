# Two commands set up what they need and ask nothing: `make demo` and `make test`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test lint clean

demo: $(VENV)/.demo
	$(BIN)/zeroclawd demo

test: lint
	@./tests/need
	$(BIN)/python -m pytest -n auto tests

# The tools are loaded under a name of their own, so mypy has to see them under it.
lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	@mkdir -p .mypy_cache/path && ln -sfn ../../tools .mypy_cache/path/zeroclawd_tools
	MYPYPATH=.mypy_cache/path $(BIN)/mypy --package zeroclawd_tools
	$(BIN)/lint-imports

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "zeroclawd needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V). Try: make PYTHON=python3.11"; exit 2; }
	@$(PYTHON) -m venv $(VENV) || \
	  { echo "The venv module is missing. On Debian: sudo apt-get install python3-venv"; exit 2; }

$(VENV)/.demo: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[demo]'
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[demo,intents,board,dev]'
	@touch $@

clean:
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
