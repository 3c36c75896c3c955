# make run   shows the main job on the bundled sample      make test  runs every test
# make check is the quick gate                             make bench prints the measured figures
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help run test check bench docs release mutants soak install clean

help:
	@echo "make run      install into .venv and show the main job on the bundled sample"
	@echo "make test     install everything the tests need and run all of them"
	@echo "make check    lint, types, import contracts, quick tests (under two minutes)"
	@echo "make bench    measure speed and accuracy against peers"
	@echo "make docs     build the documentation into build/site"
	@echo "make release  build wheel and sdist, install and use them in empty environments"
	@echo "make mutants  change the lines that privacy depends on and see whether anybody notices"
	@echo "make soak     30 minutes of load on a server that is killed every 20 seconds"
	@echo "make clean    remove what make created"

$(VENV)/.core: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[engine,cli]'
	@touch $@

$(STAMP): $(VENV)/.core
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all,dev]'
	@touch $@

# Debian packages that the tests talk to; installed only where they are missing.
.PHONY: system
system:
	@command -v redis-server >/dev/null || { apt-get update -qq && apt-get install -y -qq redis-server; }
	@command -v systemd-analyze >/dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends systemd; }
	@command -v chromium >/dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; }

install: $(STAMP)

run: $(VENV)/.core
	@$(BIN)/python examples/clinic.py

test: $(STAMP) system
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict src/panstream
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m pytest -q -n 2 --dist loadfile

check: $(STAMP) system
	$(BIN)/ruff check .
	$(BIN)/mypy --strict src/panstream
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m pytest -q -n 2 --dist loadfile -m "not slow"

bench: $(STAMP) system
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt datasketches python-dp
	$(BIN)/python benchmarks/bench.py $(PARTS)

docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "build/site/index.html"

release: $(STAMP)
	$(BIN)/python benchmarks/release.py

mutants: $(STAMP)
	$(BIN)/python benchmarks/mutants.py

soak: $(STAMP)
	$(BIN)/python benchmarks/soak.py

clean:
	find src -name '*.nb[ic]' -delete
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
