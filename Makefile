# Every verb works from a bare checkout with Python 3.11+ and make; the first one run makes .venv.
PYTHON ?= $(shell for candidate in python3 python3.14 python3.13 python3.12 python3.11; do \
  $$candidate -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$candidate && break; done)
ARGS ?=
BIN := .venv/bin
READY := .venv/.ready

.DEFAULT_GOAL := help
.PHONY: help setup demo test check lint format typecheck lock clean

help: ## List these verbs
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | awk -F '\t' '{ printf "  make %-10s %s\n", $$1, $$2 }'

setup: $(READY) ## Make the environment in .venv, find Java 17+ and fetch the jars (once)

# Made last, so that an interrupted set-up is taken up again.
$(READY): requirements.lock pyproject.toml scripts/setup.py scripts/machine.py
	@$(if $(strip $(PYTHON)),,$(error No Python 3.11 or newer on PATH; install one, or name it: make PYTHON=/path/to/python3 setup))
	@$(PYTHON) scripts/setup.py
	@touch $@

demo: setup ## Run the demonstration: a shop, three levels of stream tables, rounds of changes
	@$(BIN)/headrace demo $(ARGS)

test: setup ## Run the tests; ARGS="tests/sql -k name" picks some
	@$(BIN)/pytest $(ARGS)

check: lint typecheck ## Run every linter and the type checker

lint: setup ## Check style, formatting, import contracts and dependencies
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/deptry src

format: setup ## Format the code and sort imports
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

typecheck: setup ## Check types with mypy, strictly
	@$(BIN)/mypy

lock: ## Write requirements.lock from what is installed in .venv
	@$(BIN)/python scripts/lock.py
	@touch $(READY)

clean: ## Remove the environment, caches and the demonstration's warehouse
	rm -rf .venv demo-lake build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	rm -rf src/*.egg-info
