# `make demo` and `make test` do all set-up themselves; nothing outside this folder is touched.

PYTHON ?= python3
BIN := .venv/bin
# The version of torch, if not that of constraints.txt: make test TORCH=2.15.0
TORCH ?= $(shell sed -n 's/^torch==//p' constraints.txt)
READY := .venv/.ready-$(TORCH)

# Tests are small jobs, and several at a time want the cores. So they run in one process per core, up to
# four (each imports torch), with one thread each.
export OMP_NUM_THREADS ?= 1
# Many tests start processes of their own; without compiled files each of them would compile torch again.
unexport PYTHONDONTWRITEBYTECODE
PYTEST := $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal --hypothesis-profile=ci

.NOTPARALLEL:
.PHONY: help demo test check lint types tests slow docs format bench wheel wheels constraints clean

help:
	@echo "make demo         train a network on digits, dense and 90 % sparse"
	@echo "make test         lint, types, tests: what CI runs (make check is the same)"
	@echo "make lint, make types, make tests   one of the three"
	@echo "make slow         the tests that train end to end, the site in a browser"
	@echo "make docs         the documentation as a site: build/docs/index.html"
	@echo "make format       mend what lint finds, where a tool can"
	@echo "make bench        how to run the benchmarks"
	@echo "make wheel        build source distribution and wheel in dist/, and try the wheel"
	@echo "make wheels       the binary wheels of this platform in dist/, for any distribution (Linux: needs Docker)"
	@echo "make constraints  renew constraints.txt, keeping its torch"
	@echo "make clean        remove the environment and all caches"

demo: $(READY)
	$(BIN)/st3 train

test: lint types tests

check: test

lint: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(READY)
	$(BIN)/mypy

tests: $(READY)
	$(PYTEST)

slow: $(READY)
	$(PYTEST) -m slow

# Sphinx reads from the repository, so that links lead to the same files as on a code host.
docs: $(READY)
	$(BIN)/python -m sphinx -q -E -W --keep-going -c docs -d build/doctrees . build/docs
	@echo "build/docs/index.html"

format: $(READY)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: $(READY)
	@echo "Each of these is a program; --help lists its options. Run one at a time on an idle machine:"
	@for program in $$(grep -l "def main" benchmarks/*.py); do echo "  $(BIN)/python $$program"; done

# The constraints hold for every pip call: any package may otherwise bring a newer torch.
$(READY): pyproject.toml constraints.txt
	@echo "setting up .venv (about a minute)"
	$(PYTHON) -m venv .venv
	sed 's/^torch==.*/torch==$(TORCH)/' constraints.txt > .venv/constraints.txt
	$(BIN)/pip install -qq --no-compile -c .venv/constraints.txt -e '.[test]'
	@rm -f .venv/.ready*
	@touch $@

wheel:
	rm -rf dist
	$(PYTHON) -m venv --clear .venv-wheel
	.venv-wheel/bin/pip install -qq build
	.venv-wheel/bin/python -m build --outdir dist .
	$(PYTHON) -m venv --clear .venv-wheel
	.venv-wheel/bin/pip install -qq --no-compile -c constraints.txt "$$(ls $(CURDIR)/dist/*.whl)[train]"
	.venv-wheel/bin/st3 --version
	rm -rf .venv-wheel

wheels:
	rm -rf dist
	$(PYTHON) -m venv --clear .venv-wheel
	.venv-wheel/bin/pip install -qq 'cibuildwheel>=3.1'
	.venv-wheel/bin/cibuildwheel --output-dir dist
	rm -rf .venv-wheel

constraints:
	$(PYTHON) -m venv --clear .venv-constraints
	grep '^torch==' constraints.txt > .venv-constraints/torch.txt
	.venv-constraints/bin/pip install -qq --no-compile -c .venv-constraints/torch.txt -e '.[test]'
	.venv-constraints/bin/pip freeze --exclude-editable > .venv-constraints/freeze.txt
	(grep '^#' constraints.txt; sed 's/^\(torch==[^+]*\)+.*/\1/' .venv-constraints/freeze.txt) > .venv-constraints/new.txt
	mv .venv-constraints/new.txt constraints.txt
	rm -rf .venv-constraints

clean:
	rm -rf .venv .venv-constraints .venv-wheel .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
