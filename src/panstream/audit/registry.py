"""Every case that can be audited: what panstream ships, the controls, and whatever you register."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from panstream.audit.case import Case
from panstream.audit.exact import Enumeration, LinearProgram, Scenario
from panstream.errors import InvalidParameter
from panstream.testing.enumerate import Step, World

__all__ = ["case_of", "cases", "forget_case", "linear_case", "register_case", "select"]

_OWN: dict[str, Case] = {}


@lru_cache(maxsize=1)
def shipped() -> dict[str, Case]:
    """Return what comes with panstream, by name."""
    from panstream.audit.controls import control_cases
    from panstream.audit.shipped import production_cases

    found: dict[str, Case] = {}
    for case in (*production_cases(), *control_cases()):
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


def case_of(
    algorithm: Any,
    streams: Sequence[World],
    *,
    window: tuple[int, int],
    name: str | None = None,
    claimed: float | None = None,
    looks: tuple[int | None, ...] | None = None,
) -> Case:
    """Return a production case for your algorithm, by enumeration: any two of ``streams`` are neighbours.

    The state must be small (a few bits or residues) and every draw must come from the source that is passed in. ``window``
    bounds the noisy integers, as in :class:`panstream.testing.enumerate.Enumerator`.
    """
    return Case(
        name=name or type(algorithm).__name__,
        kind="production",
        claimed=algorithm.claim().epsilon if claimed is None else claimed,
        exact=Enumeration(algorithm, window, [Scenario(streams, looks)]),
        algorithm=algorithm,
        sampled=True,
        quick_runs=500,
    )


def linear_case(
    algorithm: Any,
    world: Sequence[Step],
    neighbours: Sequence[Sequence[Step]],
    *,
    name: str | None = None,
    claimed: float | None = None,
    looks: tuple[int | None, ...] | None = None,
) -> Case:
    """Return a production case for your counter, by linear program: ``neighbours`` are all neighbours of ``world``.

    Everything that is published and stored must be linear in the noise.
    """
    return Case(
        name=name or type(algorithm).__name__,
        kind="production",
        claimed=algorithm.claim().epsilon if claimed is None else claimed,
        exact=LinearProgram(algorithm, world, neighbours, looks),
        algorithm=algorithm,
        sampled=True,
        quick_runs=500,
    )
