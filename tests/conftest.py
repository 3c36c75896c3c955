"""Which tests need programs that may be missing, and what was left out."""

import os
import shutil
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import settings

# Elsewhere hypothesis looks for new counterexamples in every run; a landing should not depend on its luck.
settings.register_profile("usual", deadline=None)  # a busy machine is no failure
settings.register_profile("landing", derandomize=True, deadline=None)
settings.load_profile("usual")
if os.environ.get("CI"):
    settings.load_profile("landing")

TESTS = Path(__file__).parent

NEEDS = {  # a program that tests talk to, and the Debian package that has it
    "browser/": ("chromium", "chromium"),
    "engine/test_redis.py": ("redis-server", "redis-server"),
    "packaging/test_packaging.py::test_unit_is_understood_and_tight": ("systemd-analyze", "systemd"),
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if not item.path.is_relative_to(TESTS):
            continue
        path = item.path.relative_to(TESTS).as_posix()
        for place, (program, package) in NEEDS.items():
            if f"{path}::{item.name}".startswith(place) and shutil.which(program) is None:
                item.add_marker(pytest.mark.skip(reason=f"{program} is not installed (Debian: {package})"))
    # Files that take long begin first: one that begins last keeps the others waiting at the end.
    slow = Counter(item.path for item in items if item.get_closest_marker("slow") is not None)
    items.sort(key=lambda item: slow[item.path] == 0)


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
    if hasattr(config, "workerinput") or not (reasons := _skipped(config)):
        return
    forbidden = os.environ.get("PANSTREAM_NO_SKIPS") == "1"
    print(f"\n{'FAILED' if forbidden else 'NOT RUN'}: {reasons.total()} tests were skipped")
    for reason, count in reasons.most_common():
        print(f"  {count:4} {reason}")
