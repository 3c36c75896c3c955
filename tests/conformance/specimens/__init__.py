"""A specimen of every shipped algorithm, for the conformance suite and the audit."""

from panstream.testing.checks import Specimen
from panstream.testing.specimens.continual import continual_specimens
from panstream.testing.specimens.density import density_specimens
from panstream.testing.specimens.distinct import distinct_specimens
from panstream.testing.specimens.turnstile import turnstile_specimens

__all__ = ["specimens"]


def specimens() -> list[Specimen]:
    """Return one specimen for every algorithm and every option that changes its claim."""
    return [*density_specimens(), *distinct_specimens(), *turnstile_specimens(), *continual_specimens()]
