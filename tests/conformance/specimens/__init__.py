"""A specimen of every shipped algorithm, for the conformance suite and the audit."""

from functools import cache

from panstream.testing.conformance import Specimen
from tests.conformance.specimens.continual import continual_specimens
from tests.conformance.specimens.continual_users import continual_users_specimens
from tests.conformance.specimens.density import density_specimens
from tests.conformance.specimens.distinct import distinct_specimens
from tests.conformance.specimens.frequent import frequent_specimens
from tests.conformance.specimens.networks import network_specimens
from tests.conformance.specimens.turnstile import turnstile_specimens

__all__ = ["specimens"]


@cache
def specimens() -> list[Specimen]:
    """Return one specimen for every algorithm and every option that changes its claim."""
    rooms = (
        density_specimens,
        distinct_specimens,
        turnstile_specimens,
        continual_specimens,
        continual_users_specimens,
        frequent_specimens,
        network_specimens,
    )
    return [specimen for room in rooms for specimen in room()]
