"""Every case that can be audited: what panstream ships, the controls, and whatever you register."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from panstream.audit.case import Case
from panstream.errors import InvalidParameter

__all__ = ["cases", "forget_case", "register_case", "select", "shipped"]

_OWN: dict[str, Case] = {}


@lru_cache(maxsize=1)
def shipped() -> dict[str, Case]:
    """Return what comes with panstream, by name: production first, then the controls."""
    from panstream.audit.shipped import shipped_cases

    found: dict[str, Case] = {}
    for case in sorted(shipped_cases(), key=lambda case: case.kind, reverse=True):
        if case.name in found:
            raise InvalidParameter(f"two cases are named {case.name!r}")
        found[case.name] = case
    return found


def cases() -> list[Case]:
    """Return all cases, yours last."""
    return [*shipped().values(), *_OWN.values()]


def register_case(case: Case) -> Case:
    """Add a case of your own to every audit of this process."""
    if case.name in shipped() or case.name in _OWN:
        raise InvalidParameter(f"a case named {case.name!r} is registered already")
    _OWN[case.name] = case
    return case


def forget_case(name: str) -> None:
    """Remove a case of your own."""
    _OWN.pop(name, None)


def select(names: Iterable[str]) -> list[Case]:
    """Return the cases whose name or algorithm is or begins with one of ``names``, whatever its case; all for no names."""
    wanted = list(names)
    if not wanted:
        return cases()
    found: dict[str, Case] = {}
    for name in wanted:
        low = name.casefold()
        fits = [case for case in cases() if case.name.casefold().startswith(low) or low == case.kind]
        if not fits:
            known = sorted({case.name.split(",")[0] for case in cases()})
            raise InvalidParameter(f"no case is named {name!r}; there are: {'; '.join(known)}")
        found.update((case.name, case) for case in fits)
    return list(found.values())
