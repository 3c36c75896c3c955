"""Which tests need programs that may be missing, and what was left out."""

import functools
import gc
import itertools
import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Before NumPy is imported, and for all processes that tests start: several workers share the cores, and threads of
# a matrix product that wait for each other burn them.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pytest
import typer.testing
from hypothesis import settings

from tests import chromium

# Tests call commands some hundred times; what an app looks like is the same every time.
typer.testing._get_command = functools.cache(typer.testing._get_command)

# Elsewhere hypothesis looks for new counterexamples in every run; a landing should not depend on its luck.
settings.register_profile("usual", deadline=None)  # a busy machine is no failure
settings.register_profile("landing", derandomize=True, deadline=None)
settings.load_profile("usual")
if os.environ.get("CI"):
    settings.load_profile("landing")

TESTS = Path(__file__).parent
COSTS = TESTS / "costs.json"  # seconds of the files that take longest; PANSTREAM_COSTS=1 make test measures them anew

PLACES = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin"  # where daemons are, though not on everybody's path
NEEDS = {  # a program that tests talk to, and the Debian package that has it
    "browser/": (chromium.PROGRAM or "chromium", "chromium-headless-shell"),
    "engine/sources/test_mqtt.py": ("mosquitto", "mosquitto"),
    "engine/sources/test_redis.py": ("redis-server", "redis-server"),
    "engine/sinks/test_postgres.py": ("pg_createcluster", "postgresql"),
    "examples/test_examples.py::test_example_runs[smart_meters_mqtt.py]": ("mosquitto", "mosquitto"),
    "packaging/test_prometheus.py": ("promtool", "prometheus"),
    "packaging/test_packaging.py::test_unit_is_understood_and_tight": ("systemd-analyze", "systemd"),
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if not item.path.is_relative_to(TESTS):
            continue
        path = item.path.relative_to(TESTS).as_posix()
        for place, (program, package) in NEEDS.items():
            if f"{path}::{item.name}".startswith(place) and shutil.which(program, path=PLACES) is None:
                item.add_marker(pytest.mark.skip(reason=f"{program} is not installed (Debian: {package})"))
    # Files that take long begin first, the longest of all at the head: one that begins last keeps the others waiting.
    slow = Counter(item.path for item in items if item.get_closest_marker("slow") is not None)
    known = json.loads(COSTS.read_text())
    items.sort(key=lambda item: (-known.get(_file(item.nodeid), 0), slow[item.path] == 0))


def _file(nodeid: str) -> str:
    return nodeid.split("::")[0].removeprefix("tests/")


def _write_costs(config: pytest.Config) -> None:
    """Note the seconds of the files that took longest, for the order in which the next runs begin them."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    spent = Counter[str]()
    for report in itertools.chain.from_iterable(reporter.stats.values() if reporter is not None else ()):
        if isinstance(report, pytest.TestReport):
            spent[_file(report.nodeid)] += report.duration
    found = json.loads(COSTS.read_text()) | {file: round(seconds) for file, seconds in spent.items()}
    longest = {file: seconds for file, seconds in sorted(found.items(), key=lambda each: -each[1]) if seconds >= 3}
    COSTS.write_text(json.dumps(longest, indent=1) + "\n")


_freeze = gc.freeze


@pytest.hookimpl(hookwrapper=True)
def pytest_collection() -> Iterator[None]:
    """Almost everything that is made while tests are collected stays: the collector would look through it in vain."""
    gc.disable()
    yield
    gc.enable()


def pytest_collection_finish() -> None:
    """What was collected stays to the end: nobody need look through its 600,000 objects, now or after every file, nor
    where a server of a test starts and stops, which would thaw them.
    """
    _freeze()
    gc.freeze = gc.unfreeze = lambda: None


DASK = ("distributed/sharded/", "cli/test_hardening.py")  # tests with a Dask client in their own process
_dask_was_used = False


@pytest.hookimpl(tryfirst=True, hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Dask drops connections to workers that were killed without closing them, and nobody knows when they are found:
    from the first test with a client on, a plain socket left open fails nothing in this process.
    """
    global _dask_was_used
    if item.path.is_relative_to(TESTS):
        _dask_was_used |= item.path.relative_to(TESTS).as_posix().startswith(DASK)
    if _dask_was_used:
        item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))
    yield


@pytest.fixture(scope="module", autouse=True)
def _leaks_fail_their_own_file() -> Iterator[None]:
    """Collect garbage after each file, so that a socket or file left open fails the file that left it; what is left
    then are imports and caches, which the next file need not look through again.
    """
    yield
    gc.collect()
    _freeze()


@pytest.fixture(scope="session")
def _scanner() -> Iterator[Any]:
    from tests.warm_scanner import WarmScanner

    found = WarmScanner()
    yield found
    found.close()


@pytest.fixture
def warm_scanner(_scanner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have scans of this test done by a process that is there already."""
    monkeypatch.setattr("panstream.testing.memory._launcher._run", _scanner.run)


def _skipped(config: pytest.Config) -> Counter[str]:
    """Return how many tests were skipped, by reason."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    reports = [] if reporter is None else reporter.stats.get("skipped", [])
    reasons = [report.longrepr[2] if isinstance(report.longrepr, tuple) else "no reason" for report in reports]
    return Counter(reason.removeprefix("Skipped: ") for reason in reasons)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Where nothing may be left out, a skipped test fails the run."""
    if os.environ.get("PANSTREAM_NO_SKIPS") == "1" and exitstatus == 0 and _skipped(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_unconfigure(config: pytest.Config) -> None:
    """Say in the last lines what was not run, and why."""
    if hasattr(config, "workerinput"):
        return
    if os.environ.get("PANSTREAM_COSTS") == "1":
        _write_costs(config)
    if not (reasons := _skipped(config)):
        return
    forbidden = os.environ.get("PANSTREAM_NO_SKIPS") == "1"
    print(f"\n{'FAILED' if forbidden else 'NOT RUN'}: {reasons.total()} tests were skipped")
    for reason, count in reasons.most_common():
        print(f"  {count:4} {reason}")
