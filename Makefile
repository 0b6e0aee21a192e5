# Two commands need nothing but Python 3.11+ and make:
#   make demo   installs into .venv with pinned versions and runs the main job
#   make test   the same, then the checks for every commit: format, lint, types, imports, the short tier of the tests
# CI runs make test-all: the same with the long tier (whole tables, browsers, faults, the strict docs build)
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
export OMP_NUM_THREADS ?= $(shell nproc 2>/dev/null || sysctl -n hw.ncpu 2>/dev/null || echo 2)
# Tests start hundreds of processes: without cached bytecode each of them compiles the library again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-all test-engines lint types imports unit unit-all docs tables slow benchmark clean

demo: .venv/installed
	$(BIN)/recollect demo

# The type checker has one process: beside the tests it costs no time of its own on two cores.
test: lint
	@$(MAKE) -j3 types imports unit

test-all: lint
	@$(MAKE) -j3 types imports unit-all

lint: .venv/installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: .venv/installed-dev
	$(BIN)/pyright

imports: .venv/installed-dev
	$(BIN)/lint-imports

docs: .venv/installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

unit: .venv/installed-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -q -m "not slow and not gpu and not long"

unit-all: .venv/installed-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -q

# Each engine's adapter, in environments of their own: the pins of RLlib and TorchRL exclude each other, and the third has
# the oldest versions that pyproject.toml allows. The tests take about four minutes; tests/adapters/test-engines.log has
# the last run.
ENGINES := .venv-engines .venv-rllib .venv-oldest
ENGINE_TESTS := tests/adapters tests/serving/test_ray_serve.py tests/training/test_ray_actors.py
test-engines: $(ENGINES:%=%/installed)
	for folder in $(ENGINES); do OMP_NUM_THREADS=1 $$folder/bin/python -m pytest -n 0 -q -m long $(ENGINE_TESTS) || exit 1; done

.venv-engines/installed: PACKAGES := ".[torchrl,sb3]"
.venv-rllib/installed: PACKAGES := ".[rllib,serve]" "ray[serve]"
.venv-oldest/installed: PACKAGES := ".[rllib,sb3]" ray==2.50.1 stable-baselines3==2.6.0 sb3-contrib==2.6.0
.venv-%/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(@D)
	grep "^torch==" constraints.txt > $(@D)/torch.txt
	$(@D)/bin/python -m pip install --quiet -c $(@D)/torch.txt torch
	$(@D)/bin/python -m pip install --quiet -c $(@D)/torch.txt -e $(PACKAGES) pytest pytest-xdist
	@touch $@

tables: .venv/installed-dev
	$(BIN)/python -m recollect.recipes.memory_requirements
	$(BIN)/python benchmarks/report.py

slow: .venv/installed-dev
	$(BIN)/python -m pytest -q -m slow

benchmark: .venv/installed
	$(BIN)/recollect benchmark cores

clean:
	rm -rf .venv $(ENGINES) site

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Recollect needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv .venv

.venv/installed: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) -e ".[log,video]"
	@touch $@

.venv/installed-dev: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) -e ".[dev]"
	-npm install --silent --no-fund --no-audit --prefix .venv axe-core@4.14.1 # tests of pages skip what is not there
	-$(BIN)/python -m recollect.interpret.onnxruntime_web # for tests of the live page, which skip without it
	@touch $@ .venv/installed
