"""Negative controls: forms that are known not to keep their promise, each named after the paper or the mistake."""

from panstream.audit.shipped.attacks import attack_controls
from panstream.audit.case import Case
from panstream.audit.controls.continual import continual_controls
from panstream.audit.controls.density import density_controls
from panstream.audit.controls.generators import generator_controls
from panstream.audit.shipped.mistakes import mistake_controls
from panstream.audit.controls.turnstile import turnstile_controls

__all__ = ["control_cases"]


def control_cases() -> list[Case]:
    """Return every control."""
    return [
        *density_controls(),
        *turnstile_controls(),
        *continual_controls(),
        *mistake_controls(),
        *generator_controls(),
        *attack_controls(),
    ]
