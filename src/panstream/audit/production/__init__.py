"""A tiny instance of every shipped algorithm and of every option that changes its claim."""

from panstream.audit.attacks import attack_cases
from panstream.audit.case import Case
from panstream.audit.production.continual import continual_cases
from panstream.audit.production.density import density_cases
from panstream.audit.production.distinct import distinct_cases
from panstream.audit.production.networks import network_cases
from panstream.audit.production.turnstile import turnstile_cases

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
