# `make` lists the targets. Every path is relative, so the checkout may lie anywhere.

PYTHON ?= python3
# A pip index with another build of torch, for instance https://download.pytorch.org/whl/cpu
TORCH_INDEX ?=
# Arguments of tools/lock.py, for instance LOCK_ARGS="--constraint locks/dev.txt"
LOCK_ARGS ?=
PYTEST_ARGS ?=

BIN := .venv/bin
PIP_INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --use-pep517
# Tools started by tools (Snakemake's jobs, pre-commit's hooks) find those of the environment first.
IN_ENVIRONMENT := PATH="$$PWD/$(BIN):$$PATH"

# pytest's exit code where PYTEST_ARGS picks no test of a folder.
OR_NONE := || [ $$? -eq 5 ]

.DEFAULT_GOAL := help
.PHONY: help install demo test test-slurm lock clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 12

install: .venv/installed ## make .venv from the locks (TORCH_INDEX=URL for another build of torch, PYTHON=python3.12)

# The last line writes the stamp: an environment that was interrupted lacks it and is made anew.
.venv/locked: locks/run.txt locks/report.txt locks/dev.txt
	@command -v "$(PYTHON)" >/dev/null || \
		{ echo "make: no $(PYTHON) here; name another: make install PYTHON=python3.12" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || \
		{ echo "make: needs Python 3.11 to 3.13 and found $$("$(PYTHON)" --version 2>&1); name another: make install PYTHON=python3.12" >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "make: $(PYTHON) lacks venv or pip; on Debian and Ubuntu install the package python3-venv" >&2; exit 1; }
	"$(PYTHON)" -m venv --clear .venv
	$(PIP_INSTALL) $(if $(TORCH_INDEX),--extra-index-url "$(TORCH_INDEX)") -r locks/dev.txt
	@touch .venv/locked

.venv/installed: .venv/locked pyproject.toml
	$(PIP_INSTALL) --no-deps --no-build-isolation -e .
	@touch .venv/installed

demo: install ## run the small study of config.yaml on this machine and print its summary
	$(IN_ENVIRONMENT) $(BIN)/snakemake --profile local
	$(BIN)/python -m meddpm summary

test: install ## check style and spelling, lint the workflow, run the unit and workflow tests (PYTEST_ARGS="-k NAME")
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/snakefmt --check Snakefile rules
	$(BIN)/codespell
	$(IN_ENVIRONMENT) $(BIN)/snakemake --lint
	$(IN_ENVIRONMENT) OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadfile tests/unit $(PYTEST_ARGS) $(OR_NONE)
	$(IN_ENVIRONMENT) $(BIN)/python -m pytest -n 2 --dist loadgroup tests/workflow $(PYTEST_ARGS) $(OR_NONE)

# In one process: the tests change nodes and daemons of the one cluster.
test-slurm: install ## run the tests on a SLURM of this machine's own (root, slurmctld and slurmd installed; else they skip)
	$(IN_ENVIRONMENT) OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 0 tests/slurm $(PYTEST_ARGS) $(OR_NONE)

lock: install ## write locks/ and envs/ anew from pyproject.toml (LOCK_ARGS="--constraint locks/dev.txt" keeps the pins)
	$(BIN)/python tools/lock.py $(LOCK_ARGS)

clean: ## remove .venv and the caches; results/ stays
	rm -rf .venv .pytest_cache .ruff_cache dist
	find . -name __pycache__ -prune -exec rm -rf {} +
