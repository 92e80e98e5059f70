# Everything needs Python >= 3.11 and make; the rest is set up here, with pinned and hashed versions.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
INSTALL := $(PIP) install --quiet --root-user-action ignore --no-warn-script-location
REQUIREMENTS := deploy/requirements
WORKERS ?= 2

.PHONY: help setup demo serve test check format vectors requirements clean

help:
	@echo "make demo    remember, recall and a proof of isolation, in a temporary folder"
	@echo "make test    everything CI runs"
	@echo "make serve   a relayer in the foreground, data in ./data"
	@echo "make setup   only the set-up: .venv/bin/relayer and .venv/bin/memrelay"

setup: .venv/.model

demo: setup
	@$(BIN)/python deploy/demo/demo.py

serve: setup
	@exec $(BIN)/relayer serve --data-dir data

test: .venv/.dev .venv/.model
	@echo "[1/6] format"
	@$(BIN)/ruff format --check --quiet .
	@echo "[2/6] lint"
	@$(BIN)/ruff check --quiet .
	@echo "[3/6] types"
	@$(BIN)/mypy
	@cd client && ../$(BIN)/mypy
	@echo "[4/6] import rule"
	@$(BIN)/lint-imports --no-cache
	@echo "[5/6] vectors"
	@$(BIN)/python -m tests.generate_vectors --check
	@echo "[6/6] tests"
	@rm -f .coverage .coverage.*
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup --cov=relayer --cov-branch --cov-report=
	@echo "branch coverage of the request checks and the cryptography must be complete:"
	@$(BIN)/coverage report --include='relayer/checks.py,relayer/sui.py,relayer/sealed/*' --fail-under=100

format: .venv/.dev
	$(BIN)/ruff format --quiet .
	$(BIN)/ruff check --fix --quiet .

vectors: .venv/.dev
	$(BIN)/python -m tests.generate_vectors

# Pins without an index address, hashes for every platform of a version.
COMPILE := $(BIN)/pip-compile --quiet --generate-hashes --no-header --no-emit-index-url \
	--no-emit-find-links --strip-extras --allow-unsafe

requirements: .venv/.dev
	$(COMPILE) -o $(REQUIREMENTS)/runtime.txt $(REQUIREMENTS)/runtime.in pyproject.toml client/pyproject.toml
	$(COMPILE) -o $(REQUIREMENTS)/dev.txt $(REQUIREMENTS)/dev.in
	$(COMPILE) --no-deps -o $(REQUIREMENTS)/memwal-next.txt $(REQUIREMENTS)/memwal-next.in

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "memrelay needs Python 3.11 or newer; set PYTHON=..."; exit 1; }
	@echo "set-up: creating .venv"
	@$(PYTHON) -m venv .venv

.venv/.runtime: .venv/bin/python $(REQUIREMENTS)/runtime.txt pyproject.toml client/pyproject.toml
	@echo "set-up: installing pinned dependencies"
	@$(INSTALL) --require-hashes -r $(REQUIREMENTS)/runtime.txt
	@echo "set-up: installing relayer and memrelay"
	@$(INSTALL) --no-deps --no-build-isolation -e . -e client
	@touch $@

.venv/.model: .venv/.runtime
	@echo "set-up: embedding model"
	@$(BIN)/relayer model fetch
	@touch $@

.venv/.dev: .venv/.runtime $(REQUIREMENTS)/dev.txt
	@echo "set-up: installing the checks' dependencies"
	@$(INSTALL) --require-hashes -r $(REQUIREMENTS)/dev.txt
	@touch $@

clean:
	rm -rf .venv build dist *.egg-info client/*.egg-info .coverage* .mypy_cache .pytest_cache .ruff_cache
