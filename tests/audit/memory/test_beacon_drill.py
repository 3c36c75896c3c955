"""The memory drill for beacons: of addresses, user agents, pages and ids nothing stays; what waits is seen."""

import pytest

from panstream.audit.memory.beacons import WAITING, drill_beacons


@pytest.mark.slow
@pytest.mark.usefixtures("warm_scanner")
def test_nothing_stays_of_visitors() -> None:
    report = drill_beacons(visitors=2_000, waiting=500)
    assert report.ok, str(report)
    assert report.found(WAITING) == 500  # the scan sees what is there
