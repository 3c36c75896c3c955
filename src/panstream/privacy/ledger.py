"""A ledger of charges, with the total loss of each unit: a claim counts once per unit of its own that a change touches.

A changed event is also a change of its user, of her window and of its slot, so what one event loses is the sum over all
claims that read the stream. A changed user is a change of any number of events and windows, so no total for users is
bounded as soon as a claim protects single events or windows. Proofs: docs/proofs/totals.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from panstream.errors import BudgetExhausted, InvalidBytes, InvalidParameter, UnboundedLoss
from panstream.primitives.time_grid import calendar_unit, most_windows
from panstream.privacy.claim import Adjacency, Claim, Unit, format_unit
from panstream.privacy.composition import group_delta
from panstream.privacy.rounding import sum_rounded_up, times_rounded_up

Kind = tuple[Unit, Adjacency]
Charge = tuple[str, Claim]  # name and loss
_STORED_FIELDS = ("epsilon", "delta", "unit", "adjacency", "window", "event_epsilon")
_TOLERANCE = 1e-12  # relative: three queries at .1 fit a limit of .3, although their binary sum is larger

# A change of one unit (key) changes at most one unit of each of these.
_WITHIN: dict[Unit, frozenset[Unit]] = {
    "event": frozenset({"event", "slot", "edge", "user", "user-window"}),
    "slot": frozenset({"slot"}),
    "record": frozenset({"record"}),
    "edge": frozenset({"edge"}),
    "user": frozenset({"user"}),
    "user-window": frozenset({"user"}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerTotal:
    """The largest loss of one unit by all claims together.

    ``parts`` are the shares by name; ``reason`` explains why there is no bound, else it is empty.
    """

    unit: Unit
    adjacency: Adjacency
    window: float | None
    epsilon: float
    delta: float
    limit: float | None
    parts: tuple[tuple[str, float], ...]
    reason: str = ""

    @property
    def protects(self) -> str:
        """Return the unit in words."""
        return format_unit(self.unit, self.window)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; a total that is infinite or not bounded is the string "inf"."""
        return {
            "unit": self.unit,
            "adjacency": self.adjacency,
            "window": self.window,
            "protects": self.protects,
            "epsilon": _plain(self.epsilon),
            "delta": self.delta,
            "limit": self.limit,
            "bounded": not self.reason,
            "reason": self.reason,
            "parts": [{"name": name, "epsilon": _plain(epsilon)} for name, epsilon in self.parts],
        }


class Ledger:
    """An append-only list of charges. ``limits`` caps the total per (unit, adjacency).

    Args:
        limits: The largest epsilon for each unit and adjacency; a kind that is missing has no limit.
        entries: Charges made before.

    >>> from panstream.privacy import Claim
    >>> ledger = Ledger({("event", "add-remove"): 1.5})
    >>> ledger.charge("visitors", Claim(epsilon=1.0, unit="user"))
    >>> ledger.charge("visits", Claim(epsilon=0.5, unit="event"))
    >>> ledger.total("event"), ledger.total("user")
    ((1.5, 0.0), (inf, 0.0))
    >>> try:
    ...     ledger.charge("more visits", Claim(epsilon=1.0, unit="event"))
    ... except BudgetExhausted as error:
    ...     print(error)
    epsilon=1 more for one event (add-remove) would bring the total to 2.5; the limit is 1.5
    """

    __slots__ = ("_entries", "_limits")

    def __init__(self, limits: dict[Kind, float] | None = None, entries: Iterable[Charge] = ()) -> None:
        for (unit, adjacency), limit in (limits or {}).items():
            if not limit > 0:
                raise InvalidParameter(f"limit for {unit} ({adjacency}) must be positive, got {limit}")
        self._limits = dict(limits or {})
        self._entries = list(entries)

    def charge(self, name: str, claim: Claim) -> None:
        """Add the claim's loss under ``name``, or raise `BudgetExhausted` and change nothing.

        Args:
            claim: The claim.
            name: What the charge is called.
        """
        self.check(claim, name)
        self._entries.append((name, claim))

    def check(self, claim: Claim, name: str = "this claim") -> None:
        """Raise `BudgetExhausted` if charging ``claim`` would exceed a limit of any unit it touches.

        Raise its subclass `UnboundedLoss` if the total would have no bound.

        Args:
            name: What the error message calls the charge.
            claim: The claim.
        """
        entries = [*self._entries, (name, claim)]
        for kind in self._kinds(entries) if self._limits else ():
            limit = self.limit(*kind[:2])
            if limit is None:
                continue
            total = self._total(*kind, entries)
            if total.epsilon <= limit * (1.0 + _TOLERANCE):
                continue
            if total.reason:
                refused = f"a budget for one {total.protects} ({total.adjacency}) cannot be enforced: {total.reason}"
                raise UnboundedLoss(refused, unit=total.unit)
            share = dict(total.parts)[name]
            raise BudgetExhausted(
                f"epsilon={share:g} more for one {total.protects} ({total.adjacency}) would bring the total to "
                f"{total.epsilon:g}; the limit is {limit:g}"
            )

    def total(
        self, unit: Unit, adjacency: Adjacency = "add-remove", window: float | None = None
    ) -> tuple[float, float]:
        """Return the (epsilon, delta) that one unit can have lost; epsilon is inf where it is not bounded.

        Args:
            unit: The unit, such as "user".
            adjacency: How neighbouring inputs differ.
            window: Length of the windows that the charges are about; None for charges about all rows.
        """
        total = self._total(unit, adjacency, window, self._entries)
        return total.epsilon, total.delta

    def totals(self) -> tuple[LedgerTotal, ...]:
        """Return the total of every unit that has a charge or a limit, separately for each length of windows."""
        return tuple(self._total(*kind, self._entries) for kind in self._kinds(self._entries))

    def limit(self, unit: Unit, adjacency: Adjacency = "add-remove") -> float | None:
        """Return the declared limit, or ``None``.

        Args:
            unit: The unit, such as "user".
            adjacency: How neighbouring inputs differ.
        """
        return self._limits.get((unit, adjacency))

    def _kinds(self, entries: Sequence[Charge]) -> list[tuple[Unit, Adjacency, float | None]]:
        kinds = dict.fromkeys((claim.unit, claim.adjacency, claim.window) for _, claim in entries)
        named = {(unit, adjacency) for unit, adjacency, _ in kinds}
        declared = [(unit, adjacency, None) for unit, adjacency in self._limits if (unit, adjacency) not in named]
        return [*declared, *kinds]

    def _total(self, unit: Unit, adjacency: Adjacency, window: float | None, entries: Sequence[Charge]) -> LedgerTotal:
        parts: list[tuple[str, float]] = []
        deltas: list[float] = []
        reasons: list[str] = []
        for name, claim in entries:
            times = _units_touched(unit, adjacency, window, claim)
            if isinstance(times, str):
                parts.append((name, math.inf))
                reasons.append(f"{name!r} {times}")
                continue
            one = claim.event_epsilon if unit == "event" and claim.event_epsilon is not None else claim.epsilon
            parts.append((name, times_rounded_up(one, times)))
            deltas.append(group_delta(one, claim.delta, times))
        return LedgerTotal(
            unit=unit,
            adjacency=adjacency,
            window=window,
            epsilon=sum_rounded_up(epsilon for _, epsilon in parts),
            delta=sum_rounded_up(deltas),
            limit=self._limits.get((unit, adjacency)),
            parts=tuple(parts),
            reason="; ".join(reasons),
        )

    def __iter__(self) -> Iterator[Charge]:
        return iter(tuple(self._entries))

    def __len__(self) -> int:
        return len(self._entries)

    def __str__(self) -> str:
        return say_totals(self.totals())

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; `from_json` reads them back."""
        return {
            "limits": [[unit, adjacency, limit] for (unit, adjacency), limit in self._limits.items()],
            "entries": [
                [name, _plain(paid.epsilon), *(getattr(paid, field) for field in _STORED_FIELDS[1:])]
                for name, paid in self._entries
            ],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Ledger:
        """Read what `to_json` wrote.

        Args:
            data: Plain values.
        """
        try:
            limits = {(unit, adjacency): float(limit) for unit, adjacency, limit in data["limits"]}
            entries = [_charge(*row) for row in data["entries"]]
        except (KeyError, TypeError, ValueError):
            raise InvalidBytes("this is not a ledger") from None
        return cls(limits, entries)


def say_totals(totals: Iterable[LedgerTotal]) -> str:
    """Format totals as one sentence for people."""
    return "; ".join(f"{_loss(total)} for one {total.protects}" for total in totals)


def _loss(total: LedgerTotal) -> str:
    if total.epsilon == math.inf:
        return "no bound on epsilon"
    return f"epsilon {total.epsilon:.6g}" + (f", delta {total.delta:.3g}," if total.delta else "")


def _units_touched(unit: Unit, adjacency: Adjacency, window: float | None, claim: Claim) -> int | str:
    """Return how many of a claim's units a change of one ``unit`` touches at most, or text why there is no bound.

    >>> day = Claim(epsilon=1.0, unit="user-window", window=86_400.0)
    >>> _units_touched("event", "add-remove", None, day), _units_touched("user-window", "add-remove", 604_800.0, day)
    (1, 7)
    """
    if (unit, adjacency, window) == (claim.unit, claim.adjacency, claim.window) and (window or unit != "user-window"):
        return 1
    many = _windows(window, claim.window) if unit == claim.unit == "user-window" else 1
    if many is None or (unit != claim.unit and claim.unit not in _WITHIN[unit]):
        return f"protects one {claim.protects}, and nothing bounds how many of them one {unit} touches"
    # Replacing a slot's content includes adding or removing an event.
    if claim.adjacency == "replace" and claim.unit != "slot":
        return f"protects one {claim.unit} that is replaced by another, not one that is added or removed"
    return many if adjacency == "add-remove" else 2 * many


def _windows(length: float | None, other: float | None) -> int | None:
    """Return how many windows of the ``other`` length one of ``length`` can overlap; the k-th starts at k·length.

    With length : other = a : b in lowest terms, a window of a units starts at any multiple of a, so anywhere modulo b,
    and overlaps at most (a + b - 2)//b + 1 windows of b units.
    """
    if length is None or other is None:
        return None
    if (unit := calendar_unit(other)) is not None:
        return most_windows(length, unit)
    if calendar_unit(length) is not None:  # it begins anywhere in a window of the other length
        return math.ceil(Fraction(length) / Fraction(other)) + 1
    ratio = Fraction(length) / Fraction(other)
    a = ratio.numerator
    b = ratio.denominator
    return (a + b - 2) // b + 1


def _charge(name: str, *paid: Any) -> Charge:
    values = dict(zip(_STORED_FIELDS, paid, strict=True))
    numbers = {
        key: float(values[key]) for key in values if key not in ("unit", "adjacency") and values[key] is not None
    }
    return name, Claim(**values | numbers)


def _plain(epsilon: float) -> float | str:
    return epsilon if math.isfinite(epsilon) else "inf"
