"""What has been spent, one total for each unit and adjacency: different units are never added up."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from panstream.errors import BudgetExhausted, InvalidBytes, InvalidParameter
from panstream.privacy.claim import Adjacency, Claim, Unit

__all__ = ["Entry", "Ledger"]

Kind = tuple[Unit, Adjacency]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One charge: what was paid for, and how much."""

    name: str
    epsilon: float
    delta: float
    unit: Unit
    adjacency: Adjacency


class Ledger:
    """A list of charges that only grows. ``limits`` caps the total per (unit, adjacency).

    >>> from panstream.privacy import Claim
    >>> ledger = Ledger({("user", "add-remove"): 1.5})
    >>> ledger.charge("visitors", Claim(epsilon=1.0, unit="user"))
    >>> ledger.total("user")
    (1.0, 0.0)
    >>> ledger.charge("again", Claim(epsilon=1.0, unit="user"))
    Traceback (most recent call last):
    panstream.errors.BudgetExhausted: charging epsilon=1 to user (add-remove) would make 2 of 1.5
    """

    __slots__ = ("_entries", "_limits")

    def __init__(self, limits: dict[Kind, float] | None = None, entries: Iterable[Entry] = ()) -> None:
        for (unit, adjacency), limit in (limits or {}).items():
            if not limit > 0:
                raise InvalidParameter(f"limit for {unit} ({adjacency}) must be positive, got {limit}")
        self._limits = dict(limits or {})
        self._entries = list(entries)

    def charge(self, name: str, claim: Claim) -> None:
        """Add the claim's loss under ``name``, or raise :class:`BudgetExhausted` and change nothing."""
        self.check(claim)
        self._entries.append(
            Entry(
                name=name,
                epsilon=claim.epsilon,
                delta=claim.delta,
                unit=claim.unit,
                adjacency=claim.adjacency,
            )
        )

    def check(self, claim: Claim) -> None:
        """Raise :class:`BudgetExhausted` if charging ``claim`` would exceed the limit of its unit."""
        limit = self._limits.get((claim.unit, claim.adjacency))
        if limit is None:
            return
        total = self.total(claim.unit, claim.adjacency)[0] + claim.epsilon
        if total > limit * (1.0 + 1e-12):
            raise BudgetExhausted(
                f"charging epsilon={claim.epsilon:g} to {claim.unit} ({claim.adjacency}) "
                f"would make {total:g} of {limit:g}"
            )

    def total(self, unit: Unit, adjacency: Adjacency = "add-remove") -> tuple[float, float]:
        """Return (epsilon, delta) spent on ``unit`` under ``adjacency``."""
        mine = [entry for entry in self._entries if (entry.unit, entry.adjacency) == (unit, adjacency)]
        return math.fsum(entry.epsilon for entry in mine), math.fsum(entry.delta for entry in mine)

    def totals(self) -> dict[Kind, tuple[float, float]]:
        """Return every total that is not zero, or has a limit."""
        kinds = dict.fromkeys([*self._limits, *((entry.unit, entry.adjacency) for entry in self._entries)])
        return {kind: self.total(*kind) for kind in kinds}

    def limit(self, unit: Unit, adjacency: Adjacency = "add-remove") -> float | None:
        """Return the declared limit, or ``None`` where there is none."""
        return self._limits.get((unit, adjacency))

    def __iter__(self) -> Iterator[Entry]:
        return iter(tuple(self._entries))

    def __len__(self) -> int:
        return len(self._entries)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; :meth:`from_json` reads them back."""
        return {
            "limits": [[unit, adjacency, limit] for (unit, adjacency), limit in self._limits.items()],
            "entries": [
                [e.name, "inf" if math.isinf(e.epsilon) else e.epsilon, e.delta, e.unit, e.adjacency]
                for e in self._entries
            ],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Ledger:
        """Read what :meth:`to_json` wrote."""
        try:
            limits = {(unit, adjacency): float(limit) for unit, adjacency, limit in data["limits"]}
            entries = [
                Entry(name=name, epsilon=float(epsilon), delta=float(delta), unit=unit, adjacency=adjacency)
                for name, epsilon, delta, unit, adjacency in data["entries"]
            ]
        except (KeyError, TypeError, ValueError):
            raise InvalidBytes("this is not a ledger") from None
        return cls(limits, entries)
