"""Kernels give the same on every processor: compiled without vector instructions, without AVX-512, and for this one.

Hashes and stored bits are for ever and travel between machines, so the results are compared bit by bit. What they leave
in memory on other processors is looked for in ``randomness/test_wiping.py`` and ``distinct/test_wiping.py``.
"""

import pytest

from tests.kernel_digests import TARGETS, digests


@pytest.fixture(scope="module")
def here() -> dict[str, str]:
    return digests({})


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_kernels_give_the_same_on_every_processor(here: dict[str, str], target: str) -> None:
    assert len(here) > 20
    assert digests(TARGETS[target]) == here
