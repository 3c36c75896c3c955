"""Order of the tests, programs that they need, garbage collection between files, and a list of what was skipped."""

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

# Set before NumPy is imported, and inherited by all processes that tests start: several workers share the cores, and
# threads of one matrix product spin while they wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pytest
import typer.testing
from hypothesis import settings

from tests import chromium

# Tests call commands some hundred times, and typer builds the same tree of commands for each call.
typer.testing._get_command = functools.cache(typer.testing._get_command)

# Hypothesis searches for new counterexamples in every run, except in CI, where a merge should not depend on luck.
settings.register_profile("usual", deadline=None)  # how long an example takes depends on the load of the machine
settings.register_profile("landing", derandomize=True, deadline=None)
settings.load_profile("usual")
if os.environ.get("CI"):
    settings.load_profile("landing")

TESTS = Path(__file__).parent
COSTS = TESTS / "costs.json"  # seconds of the slowest files; PANSTREAM_COSTS=1 make test measures them again

SEARCH_PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin"  # daemons are in /usr/sbin, which few users search
NEEDS = {  # start of a test's path: a program that it talks to, and the Debian package that has it
    "browser/": (chromium.PROGRAM or "chromium", "chromium-headless-shell"),
    "engine/sources/test_mqtt.py": ("mosquitto", "mosquitto"),
    "engine/sources/test_redis.py": ("redis-server", "redis-server"),
    "engine/sinks/test_postgres.py": ("pg_createcluster", "postgresql"),
    "examples/test_examples.py::test_example_runs[smart_meters_mqtt.py]": ("mosquitto", "mosquitto"),
    "packaging/test_proxies.py": ("nginx", "nginx"),
    "packaging/test_prometheus.py": ("promtool", "prometheus"),
    "packaging/test_packaging.py::test_unit_is_understood_and_tight": ("systemd-analyze", "systemd"),
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = {
        f"tests/{prefix}": pytest.mark.skip(reason=f"{program} is not installed (Debian: {package})")
        for prefix, (program, package) in NEEDS.items()
        if shutil.which(program, path=SEARCH_PATH) is None
    }
    for item, (prefix, skip) in itertools.product(items, missing.items()):
        if item.nodeid.startswith(prefix):
            item.add_marker(skip)
    # Longest files first: a long file that starts last would run while the other workers have nothing left to do.
    slow = {_file(item.nodeid) for item in items if item.get_closest_marker("slow") is not None}
    costs = json.loads(COSTS.read_text())
    items.sort(key=lambda item: (-costs.get(file := _file(item.nodeid), 0), file not in slow))


def _file(nodeid: str) -> str:
    return nodeid.split("::")[0].removeprefix("tests/")


def _write_costs(config: pytest.Config) -> None:
    """Store the seconds of the slowest files, by which the next runs order them."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    measured = Counter[str]()
    for report in itertools.chain.from_iterable(reporter.stats.values() if reporter is not None else ()):
        if isinstance(report, pytest.TestReport):
            measured[_file(report.nodeid)] += report.duration
    costs = Counter(json.loads(COSTS.read_text()) | {file: round(seconds) for file, seconds in measured.items()})
    longest = {file: seconds for file, seconds in costs.most_common() if seconds >= 3}
    COSTS.write_text(json.dumps(longest, indent=1) + "\n")


_freeze = gc.freeze


@pytest.hookimpl(hookwrapper=True)
def pytest_collection() -> Iterator[None]:
    """Switch the garbage collector off while tests are collected: almost nothing that is made then is garbage."""
    gc.disable()
    yield
    gc.enable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Exempt the 600,000 objects of the collected tests from garbage collection until the end.

    Kernels of the usual algorithms are loaded before that if forks will run the tests, so that no fork has to. A server
    that a test starts and stops calls ``gc.freeze`` and ``gc.unfreeze`` itself, which would undo that.
    """
    if session.config.getoption("--forks", 0) and len(session.items) > 1_000:
        from tests.compile_kernels import algorithms_and_scanner

        algorithms_and_scanner()
    _freeze()
    gc.freeze = gc.unfreeze = lambda: None


DASK = ("distributed/sharded/", "cli/test_hardening.py")  # tests with a Dask client in their own process
_dask_was_used = False


@pytest.hookimpl(tryfirst=True, hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Ignore sockets that Dask left open, from the first test with a Dask client on.

    Dask drops connections to killed workers without closing them; the collector finds them at any later time.
    """
    global _dask_was_used
    if item.path.is_relative_to(TESTS):
        _dask_was_used |= item.path.relative_to(TESTS).as_posix().startswith(DASK)
    if _dask_was_used:
        item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))
    yield


@pytest.fixture(scope="module", autouse=True)
def _leaks_fail_their_own_file() -> Iterator[None]:
    """Collect garbage after each file, so that a socket or file left open fails the file that left it.

    What remains are imports and caches, which are exempted from later collections.
    """
    yield
    gc.collect()
    _freeze()


@pytest.fixture(scope="session")
def _scanner() -> Iterator[Any]:
    from tests.warm_scanner import WarmScanner

    scanner = WarmScanner()
    yield scanner
    scanner.close()


@pytest.fixture
def warm_scanner(_scanner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have scans of this test done by a process that has loaded its kernels already."""
    monkeypatch.setattr("panstream.testing.memory._launcher._run", _scanner.run)


def _skipped(config: pytest.Config) -> Counter[str]:
    """Return how many tests were skipped, by reason."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    reports = [] if reporter is None else reporter.stats.get("skipped", [])
    reasons = [report.longrepr[2] if isinstance(report.longrepr, tuple) else "no reason" for report in reports]
    return Counter(reason.removeprefix("Skipped: ") for reason in reasons)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail the run for a skipped test if ``PANSTREAM_NO_SKIPS`` is 1."""
    if os.environ.get("PANSTREAM_NO_SKIPS") == "1" and exitstatus == 0 and _skipped(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_unconfigure(config: pytest.Config) -> None:
    """Print the number of skipped tests and the reasons as the last lines."""
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
