"""The memory drill itself: nothing is found in a hardened server, and something is in one that is not."""

import pytest

from panstream.audit.memory.drill import IN_FLIGHT, drill
from panstream.audit.memory.two_party import drill_machines
from tests.fault_injection.recorded_drill import drill_recorded_machines

IDS = 11_500

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("warm_scanner")]


def test_nothing_stays_in_a_hardened_server() -> None:
    report = drill(ids=IDS)
    assert report.valid, str(report)
    assert report.ok, str(report)
    assert report.found(IN_FLIGHT) > 0  # the scan sees what is there


def test_ids_that_are_there_are_found() -> None:
    """Without hardening, ids of past rows may stay in freed memory or not; those in flight are there, and must be
    seen.
    """
    report = drill(ids=IDS, hardened=False, secret=True)
    assert "states in ordinary memory" in report.after  # secret memory is a part of hardening
    assert report.valid, str(report)
    assert report.found(IN_FLIGHT) > 0


def test_nothing_stays_on_two_machines_and_their_front_end() -> None:
    """Nor do keys, masks, keystream, noise, messages and shares of earlier epochs, though the search sees those in
    flight.
    """
    report = drill_recorded_machines(ids=250)
    assert report.valid, str(report)
    assert report.ok, str(report)
    kinds = {"ids", "8-byte keyed hashes", "key", "keystream", "message", "noise", "share", "TLS secrets", "X25519"}
    assert kinds == {kind for kind, count, _ in report.rows if count > 10 and kind not in report.expected_hits}


def test_the_command_s_drill_searches_for_ids_and_tls_secrets() -> None:
    """It records nothing inside the processes: that code is not in the wheel."""
    report = drill_machines(ids=250)
    assert report.ok, str(report)
    assert {"ids", "8-byte keyed hashes", "TLS secrets"} == {
        kind for kind, _, _ in report.rows if kind not in report.expected_hits
    }
    assert all(count for _, count, _ in report.rows)
    assert "make audit-controls" in str(report)
