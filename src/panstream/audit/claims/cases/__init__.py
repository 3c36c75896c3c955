"""The library's cases, one module per package of algorithms.

Production cases are a small instance of every algorithm and of every option that changes its claim. Controls are forms
that are known to violate their claim, each named after the paper or the mistake, and must be caught.
"""

from collections.abc import Iterator
from importlib import import_module

from panstream.audit.claims.case import Case

__all__ = ["GROUPS", "cases_in"]

GROUPS = (
    "density",
    "distinct",
    "turnstile",
    "continual",
    "gaussian",
    "heavy_hitters",
    "continual_users",
    "person_periods",
    "known_mistakes",
    "networks",
    "category_names",
    "streaming_tables",
    "secret_shared",
    "attacks",
)


def cases_in(module_name: str) -> Iterator[Case]:
    """Yield the cases of one module."""
    for make_cases in import_module(f"{__name__}.{module_name}").CASES:
        yield from make_cases()
