# make demo   a real geocoded table becomes a release (no compiler needed)
# make test   the tests of every push that this machine allows; says what it left out and why
# make nightly  all tests, with those that take too long for every push
# make docs   builds the pages into docs/_build/html, every example run in full
# make check  formatting, lint, complexity, the arrows between the rooms, types
# make trust  injects faults into real runs and writes docs/trust-table.md
# make kills  kills run, publish and compare 100 times at random moments
# make notebooks  the teaching examples as notebooks, run in full, in notebooks/
# make mutants  changes 100 places of table/, risk/ and release/ one by one and names what no test notices
# make dist   builds wheel and sdist into dist/ and has twine check them
# make advisories OSV=all.zip  writes requirements/advisories.json from OSV's export of PyPI
# make lock   pins all environments with hashes; make sbom, make audit: what is in them
# Environments are those of requirements/, by hash; LOCKED=no takes the newest of pyproject's ranges.
PYTHON ?= python3
LOCKED ?= yes
VENV := .venv
BIN := $(VENV)/bin
DEMO_OUT ?= demo-out
NOTEBOOKS ?= notebooks
LESSONS ?= $(wildcard examples/[0-9]*.py)

# The tests start hundreds of processes, each of which would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test nightly check docs parity bench trust kills notebooks mutants dist lock sbom audit advisories format clean

demo: $(VENV)/.demo
	@test ! -e $(DEMO_OUT) || { echo "$(DEMO_OUT) exists and is not overwritten: remove it, or make demo DEMO_OUT=another-folder"; exit 2; }
	$(BIN)/dsstan demo --dataset all --engine embedded --out $(DEMO_OUT)

test: $(VENV)/.test
	$(BIN)/python -m pytest -n 2 --dist worksteal -q

nightly: $(VENV)/.test
	DSSTAN_NIGHTLY=1 $(BIN)/python -m pytest -n 2 --dist worksteal -q

check: $(VENV)/.dev
	$(BIN)/ruff check dsstan tests docs examples data stan/data
	$(BIN)/ruff format --check dsstan tests docs examples data stan/data
	$(BIN)/lint-imports
	$(BIN)/mypy

docs: $(VENV)/.docs
	$(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html

parity: $(VENV)/.test
	$(BIN)/python tests/parity/run.py

bench: $(VENV)/.test
	$(BIN)/python tests/benchmarks/run.py
	$(BIN)/python tests/benchmarks/models.py
	$(BIN)/python tests/benchmarks/import_time.py

trust: $(VENV)/.test
	$(BIN)/python tests/faults.py

kills: $(VENV)/.test
	$(BIN)/python tests/kills.py --runs 100 --out tests/benchmarks/kills.json
	$(BIN)/python tests/trust_table.py

notebooks: $(VENV)/.docs
	mkdir -p $(NOTEBOOKS)
	for script in $(LESSONS); do \
	  notebook=$(NOTEBOOKS)/$$(basename $$script .py).ipynb; \
	  $(BIN)/jupytext --quiet --to ipynb --set-kernel python3 --output $$notebook $$script && \
	  $(BIN)/jupyter-execute --inplace $$notebook || exit 1; \
	done

mutants: $(VENV)/.dev
	$(BIN)/python tests/mutants.py 100

dist: $(VENV)/.supply
	$(BIN)/python -m build --outdir dist .
	$(BIN)/twine check --strict dist/*

# The other locks repeat versions of the first, so that all fit into one environment.
PIN = $(BIN)/uv pip compile pyproject.toml --group build --python-version 3.11 --generate-hashes --quiet \
  --no-header --no-emit-index-url --no-annotate --index-strategy unsafe-best-match

lock: $(VENV)/.supply
	$(PIN) --extra test --extra dev --extra examples --extra docs --extra arviz -o requirements/test.txt
	$(PIN) --extra examples -c requirements/test.txt -o requirements/demo.txt
	$(PIN) --extra supply -c requirements/test.txt -o requirements/supply.txt

sbom: $(VENV)/.supply
	@mkdir -p build
	$(BIN)/cyclonedx-py requirements requirements/test.txt --pyproject pyproject.toml \
	  --output-reproducible --of JSON -o build/sbom.json

audit: $(VENV)/.supply
	$(BIN)/python tests/advisories.py

advisories: $(VENV)/.supply
	$(BIN)/python tests/advisories.py --refresh $(OSV)

format: $(VENV)/.dev
	$(BIN)/ruff check --fix dsstan tests docs examples data stan/data
	$(BIN)/ruff format dsstan tests docs examples data stan/data

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or later is needed, as $(PYTHON) (set PYTHON=...). On Debian: apt-get install python3"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "Python's venv module is missing. On Debian: apt-get install python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)

PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check

# $(call install,a file of requirements/,the extras that it pins)
comma := ,
ifeq ($(LOCKED),no)
install = $(PIP) -e '.[$(2)]'
else
install = $(PIP) --require-hashes --only-binary :all: -r requirements/$(1).txt && \
  $(PIP) --no-deps --no-build-isolation --no-index -e .
endif

$(VENV)/.demo: pyproject.toml requirements/demo.txt $(BIN)/python
	$(call install,demo,examples)
	@touch $@

$(VENV)/.test: pyproject.toml requirements/test.txt $(BIN)/python
	$(call install,test,examples$(comma)test)
	@touch $@

$(VENV)/.dev: pyproject.toml requirements/test.txt $(BIN)/python
	$(call install,test,examples$(comma)test$(comma)dev)
	@touch $@

$(VENV)/.docs: pyproject.toml requirements/test.txt $(BIN)/python
	$(call install,test,docs)
	@touch $@

$(VENV)/.supply: pyproject.toml requirements/supply.txt $(BIN)/python
	$(call install,supply,supply)
	@touch $@

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
