# Every target makes .venv and installs what it needs by itself; a second call reinstalls nothing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Modules are compiled by those who import them first: all of them would take a minute, and most are never imported.
PIP := $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt
export OMP_NUM_THREADS ?= 2
# Threads that wait must not spin: on a busy machine spinning costs several times the work itself.
export OMP_WAIT_POLICY ?= passive

# What a file shares is made once, and files that take long come first (tests/measured.py).
ON_TWO_CORES := -n 2 --dist loadfile --no-loadscope-reorder
# Some of all tests wait for processes, services and locks: a third worker uses the time.
WITH_WAITS := -n 3 --dist loadfile --no-loadscope-reorder

# Tests are compiled once, and not again by each of two processes every time.
export PYTHONDONTWRITEBYTECODE :=

# Small enough for a minute on two cores; the epochs without early stopping make raw propensities overconfident.
DEMO_WORLD := $(foreach option,n_users=180 n_items=130 density=0.15 bias=1.2 dimension=2,--option $(option))

PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest
FAST := 'not hostile and not thorough and not slow'

.PHONY: help install demo lint test quick .quick-tests times thorough elsewhere fuzz bench pages docs clean

help:  ## what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) -e '.[torch,fast]'
	touch $@

# One call installs the library too: a second one would build and resolve all of it again.
$(VENV)/.installed-test: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) -e '.[test]'
	touch $(VENV)/.installed $@

# Tests, too, and the packages that they import; what collecting them says is shown where it fails.
$(VENV)/.collected: | $(VENV)/.installed-test
	$(BIN)/python -m pytest -n 0 --collect-only > $(VENV)/collected.txt || { cat $(VENV)/collected.txt; exit 1; }
	touch $@

install: $(VENV)/.installed  ## the library with networks, and the command line, into .venv

demo: $(VENV)/.installed  ## a synthetic world from log to report, about a minute
	$(BIN)/unskew run --data synthetic $(DEMO_WORLD) --method ips --learner neumf --crossfit 3 --propensity-epochs 30 \
		--out runs/demo --overwrite

lint: $(VENV)/.installed-test  ## ruff, the budgets of packages, and mypy --strict on src
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tools/house.py
	$(BIN)/mypy

test: $(VENV)/.installed-test  ## lint, and all tests
	$(MAKE) --no-print-directory -j2 lint $(VENV)/.collected
	$(PYTEST) $(WITH_WAITS)

quick: $(VENV)/.installed-test  ## lint, and the fast tests of every package, while you write
	$(MAKE) --no-print-directory -j2 lint .quick-tests

.quick-tests: $(VENV)/.installed-test
	$(PYTEST) -q $(ON_TWO_CORES) -m $(FAST)

times: $(VENV)/.installed-test  ## all tests, and write which of them are slow into tests/slow.json
	$(PYTEST) $(ON_TWO_CORES) --record-slow

thorough: $(VENV)/.installed-test  ## further worlds, random kills and full disks, and every index of compiled loops
	$(PYTEST) $(ON_TWO_CORES) -m thorough
	$(PYTEST) -m hostile -s tests/robustness
	NUMBA_BOUNDSCHECK=1 NUMBA_CACHE_DIR=$(VENV)/bounds $(PYTEST) -q $(ON_TWO_CORES) -m $(FAST)

# Spark needs a Java runtime. PYTHON_OF_ALL is a Python that another user may run.
PYTHON_OF_ALL ?= $(abspath $(BIN)/python)
elsewhere: $(VENV)/.installed-test  ## the tests on a local Spark and Ray, and in another path, locale, zone and user
	$(PIP) pyspark 'ray[data,train]'
	$(PYTEST) -n 0 -m 'spark or ray'
	tests/settings.sh $(PYTHON_OF_ALL) $(ON_TWO_CORES)

fuzz: $(VENV)/.installed-test  ## thousands of generated cases, in minutes; SEED=, CASES= and ONLY= may be given
	OMP_NUM_THREADS=1 PYTHONPATH=tests $(BIN)/python -m fuzz --cases $(or $(CASES),4000) \
		$(if $(SEED),--seed $(SEED)) $(if $(ONLY),--only '$(ONLY)')

bench: $(VENV)/.installed-test  ## the benchmarks of speed and memory, on a CPU or with DEVICE=cuda
	$(BIN)/python -m benchmarks --device $(or $(DEVICE),cpu)

pages: $(VENV)/.installed  ## write what follows from the code: exported names, tables
	$(BIN)/python docs/make_registered.py
	$(BIN)/python docs/make_tables.py
	$(BIN)/python docs/make_pictures.py

$(VENV)/.installed-docs: $(VENV)/.installed
	$(PIP) -e '.[docs]'
	touch $@

docs: pages $(VENV)/.installed-docs  ## the same, and the site: docs/_build/html/index.html, which opens offline
	rm -rf docs/_build/html  # Pages that are gone must be gone.
	OMP_NUM_THREADS=1 $(BIN)/python -m sphinx --quiet -W --keep-going -b html -d docs/_build/doctrees \
		docs docs/_build/html
	$(BIN)/python docs/check_site.py docs/_build/html

clean:  ## remove .venv, caches and the site; never your runs
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache docs/_build docs/api docs/gallery
