"""Every case that comes with panstream, by room: production cases are a tiny instance of every shipped algorithm and of
every option that changes its claim; controls are forms that are known not to keep their promise, each named after the
paper or the mistake, and must be caught.
"""

from collections.abc import Callable, Iterable

from panstream.audit.case import Case
from panstream.audit.shipped.attacks import attack_cases
from panstream.audit.shipped.continual import continual_cases
from panstream.audit.shipped.continual_users import continual_users_cases
from panstream.audit.shipped.density import density_cases
from panstream.audit.shipped.distinct import distinct_cases
from panstream.audit.shipped.frequent import frequent_cases
from panstream.audit.shipped.mistakes import mistake_cases
from panstream.audit.shipped.networks import network_cases
from panstream.audit.shipped.sharing import sharing_cases
from panstream.audit.shipped.streaming import streaming_cases
from panstream.audit.shipped.turnstile import turnstile_cases

__all__ = ["ROOMS"]

ROOMS: tuple[Callable[[], Iterable[Case]], ...] = (
    density_cases,
    distinct_cases,
    turnstile_cases,
    continual_cases,
    frequent_cases,
    continual_users_cases,
    mistake_cases,
    network_cases,
    streaming_cases,
    sharing_cases,
    attack_cases,
)
