"""The memory drill itself: nothing is found in a hardened server, and something is in one that is not."""

import pytest

from panstream.drill.memory import drill

IDS = 11_500


@pytest.mark.slow
def test_nothing_stays_in_a_hardened_server() -> None:
    report = drill(ids=IDS)
    assert report.valid, str(report)
    assert report.ok, str(report)
    assert report.found_in_flight > 0  # the scan sees what is there


@pytest.mark.slow
def test_ids_that_are_there_are_found() -> None:
    """Without hardening, ids of past rows may stay in freed memory or not; those in flight are there, and must be
    seen.
    """
    report = drill(ids=IDS, hardened=False)
    assert report.valid, str(report)
    assert report.found_in_flight > 0
