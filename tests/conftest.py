"""Which files take long as a whole: `make check` leaves them out, `make test` runs everything."""

import os
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
LONG = {  # exhaustive searches, long statistics, real processes
    "audit/test_cases.py",
    "audit/test_sabotage.py",
    "batch/test_parts.py",
    "cli/test_audit.py",
    "cli/test_federate.py",
    "cli/test_figures.py",
    "cli/test_run.py",
    "continual/test_counters.py",
    "continual/test_joint_loss.py",
    "continual/test_tree_loss.py",
    "distinct/test_likelihood.py",
    "distinct/test_merged.py",
    "engine/test_predicates.py",
    "hashing/test_permutation.py",
    "planning/test_density.py",
    "planning/test_density_published.py",
    "published/test_density.py",
    "published/test_density_figures.py",
    "randomness/test_wiping.py",
    "testing/test_memory.py",
    "testing/test_memory_search.py",
    "testing/test_reconstruction.py",
    "turnstile/test_placement.py",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(TESTS) and item.path.relative_to(TESTS).as_posix() in LONG:
            item.add_marker(pytest.mark.slow)
