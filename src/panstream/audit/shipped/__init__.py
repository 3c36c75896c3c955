"""A tiny instance of every shipped algorithm and of every option that changes its claim."""

from panstream.audit.shipped.attacks import attack_cases
from panstream.audit.case import Case
from panstream.audit.shipped.continual import continual_cases
from panstream.audit.shipped.density import density_cases
from panstream.audit.shipped.distinct import distinct_cases
from panstream.audit.shipped.networks import network_cases
from panstream.audit.shipped.turnstile import turnstile_cases

__all__ = ["production_cases"]


def production_cases() -> list[Case]:
    """Return the cases of all rooms."""
    return [
        *density_cases(),
        *distinct_cases(),
        *turnstile_cases(),
        *continual_cases(),
        *network_cases(),
        *attack_cases(),
    ]
