"""A claim: the privacy guarantee, for which unit, against which intrusions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self, get_args

from panstream.errors import InvalidParameter
from panstream.primitives import validation as checks
from panstream.primitives.durations import format_duration
from panstream.privacy.rounding import equal_share, round_up

Unit = Literal["event", "slot", "record", "edge", "user", "user-window"]
Adjacency = Literal["add-remove", "replace"]
Location = Literal["memory", "disk"]
Inputs = Literal["adaptive", "fixed"]


NO_ROW_SINCE_COPY = "no row was applied between the copy and the refresh"

_WEAK_EPSILON = 20.0
_INPUT_TEXTS = {
    "adaptive": "may depend on earlier answers and on what an intruder saw",
    "fixed": "do not depend on earlier answers",
}
_PARTS = {
    "state": "stored state",
    "output": "answers",
    "rho of marginals": "rho for one-way tables",
    "rho of structure": "rho for choosing the structure",
    "rho of tables": "rho for two-way tables",
}


def weak_epsilon_warning(epsilon: float) -> str | None:
    """Return a warning about an epsilon that hides almost nothing; none for infinity, which means no noise on purpose.

    >>> weak_epsilon_warning(1000.0)
    'epsilon = 1000 hides almost nothing: an answer may change the odds by a factor of e^1000'
    """
    if not _WEAK_EPSILON < epsilon < math.inf:
        return None
    return f"epsilon = {epsilon:g} hides almost nothing: an answer may change the odds by a factor of e^{epsilon:g}"


def count_of(number: int, noun: str) -> str:
    """Return a number with its noun.

    >>> count_of(1, "row"), count_of(20, "row")
    ('1 row', '20 rows')
    """
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def format_unit(unit: Unit, window: float | None = None) -> str:
    """Return a unit in words.

    >>> format_unit("user"), format_unit("user-window", 86_400.0)
    ('user', 'user-window of 1 day')
    """
    return unit if window is None else f"{unit} of {format_duration(window)}"


def _with_text(text: str, more: str) -> str:
    """Append a text, unless it is contained already."""
    if more in text:
        return text
    return f"{text}; {more}" if text else more


@dataclass(frozen=True, slots=True, kw_only=True)
class Intrusions:
    """How often the state may be copied.

    ``unannounced`` copies may happen at any time, before or after any release, without anyone noticing. ``announced``
    ones are followed by a refresh; then one unannounced copy is tolerated in every phase between two refreshes
    if ``per_phase`` is true, else only in the last phase. If the refresh ``freezes`` the state, an announced copy is
    covered only if no row was applied between the copy and the refresh. A negative number means any number. With two
    ``machines`` that hold shares a copy is one of either; copies of both are covered if no epoch is copied at both,
    except ``together`` epochs.

    Args:
        unannounced: Copies that nobody notices.
        announced: Copies that are followed by a refresh.
        per_phase: Whether an unannounced copy is covered in every phase between two refreshes.
        machines: Number of machines that hold shares of the state.
        together: In how many epochs both machines may be copied.
        freezes: Whether a refresh covers a copy only if no row came in between.
    """

    unannounced: int = 1
    announced: int = 0
    per_phase: bool = False
    machines: int = 1
    together: int = 0
    freezes: bool = False

    def __str__(self) -> str:
        if self.machines > 1 and self.unannounced < 0:
            both = "both in one epoch once at most" if self.together else "both never in one epoch"
            return f"any number, at one machine at a time ({both}), before or after any release"
        if self.unannounced == 0 and self.announced == 0:
            return "none"
        many = "any number of" if self.announced < 0 else str(self.announced)
        parts = [f"{self.unannounced} unannounced"] if self.unannounced else []
        parts += [f"{many} announced"] if self.announced else []
        where = ""
        if self.announced and self.unannounced:
            where = " in every phase" if self.per_phase else " (the unannounced one after the last refresh)"
        if not (self.announced and self.freezes):
            return " and ".join(parts) + where + ", at any time"
        which = "the announced one" if self.announced == 1 else "an announced one"
        return " and ".join(parts) + where + f"; {which} is covered only if {NO_ROW_SINCE_COPY}"


@dataclass(frozen=True, slots=True)
class Refresh:
    """Outcome of announcing a copy of a state.

    Attributes:
        covered: Whether the copy is covered as an announced one: then the state was refreshed.
        reason: Why it is not covered, else empty.
    """

    covered: bool
    reason: str = ""

    @classmethod
    def too_late(cls, rows_since_copy: bool | None) -> Refresh:
        """Return the outcome for a freezing state if rows were, or may have been, applied since the copy."""
        return cls(False, "rows were applied since" if rows_since_copy else "rows may have been applied since")

    def __str__(self) -> str:
        return "covered" if self.covered else f"not covered: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A guarantee of differential privacy for the joint view of attacker and public.

    The view is the state at the moment of each covered intrusion together with every release, in either order. Two
    streams are neighbours when they differ in any occurrences of one ``unit`` (``add-remove``) or when one unit's
    occurrences are exchanged for another's (``replace``).

    Args:
        epsilon: Total privacy loss.
        unit: What one change of the input concerns.
        delta: 0 for pure epsilon.
        adjacency: Which inputs are neighbours; see above.
        parts: How epsilon is split.
        intrusions: How many copies of the state are covered.
        inputs: "adaptive" if rows, and the moment of an intrusion, may be chosen after seeing
            earlier answers and copies; "fixed" if the claim is for data that do not depend on
            them (docs/proofs/adaptive.md).
        locations: Which copies are covered, of memory or disk.
        releases: How many answers are covered.
        horizon: How many ticks.
        public: Facts that are not protected.
        note: Anything else that a reader must know.
        window: Length in seconds of the windows of a claim per user-window.
        event_epsilon: Loss of one event of the unit, where that is less than ``epsilon``.
        assumption: Condition of the claim; without one it holds against any attacker.
    """

    epsilon: float
    unit: Unit
    delta: float = 0.0
    adjacency: Adjacency = "add-remove"
    parts: Mapping[str, float] = field(default_factory=dict, hash=False)
    intrusions: Intrusions = Intrusions()
    inputs: Inputs = "fixed"
    locations: tuple[Location, ...] = ("memory",)
    releases: int = 1
    horizon: int | None = None
    public: tuple[str, ...] = ()
    note: str = ""
    window: float | None = None
    event_epsilon: float | None = None
    assumption: str = ""

    def __post_init__(self) -> None:
        checks.require_at_least(0, epsilon=self.epsilon)
        if not 0 <= self.delta < 1:
            raise InvalidParameter(f"delta must be in [0, 1), got delta={self.delta}")
        if self.unit not in get_args(Unit):
            raise InvalidParameter(f"unit must be one of {', '.join(get_args(Unit))}, got unit={self.unit!r}")
        if self.adjacency not in get_args(Adjacency):
            raise InvalidParameter(f"adjacency must be add-remove or replace, got adjacency={self.adjacency!r}")
        if self.inputs not in get_args(Inputs):
            raise InvalidParameter(f"inputs must be adaptive or fixed, got inputs={self.inputs!r}")
        if self.window is not None and not (self.unit == "user-window" and 0 < self.window < math.inf):
            raise InvalidParameter(f"window must be a length in seconds of unit user-window, got window={self.window}")
        if self.event_epsilon is not None and not 0 <= self.event_epsilon <= self.epsilon:
            raise InvalidParameter(f"event_epsilon must be in [0, epsilon], got event_epsilon={self.event_epsilon}")
        object.__setattr__(self, "parts", dict(self.parts))

    @classmethod
    def of_rows(cls, epsilon: float, rows: int | None, **rest: Any) -> Self:
        """Return the claim about one event, or about a user of at most ``rows`` rows, each with an equal loss.

        Args:
            epsilon: Loss of one event.
            rest: Further fields of the claim.
            rows: Most rows of a user; None for a claim about an event.
        """
        note = "" if rows is None else f"two streams differ in at most {count_of(rows, 'row')} of one user"
        defaults: dict[str, Any] = {
            "unit": "event" if rows is None else "user",
            "note": "no noise: for tests only" if math.isinf(epsilon) else note,
            "event_epsilon": None if rows is None else round_up(equal_share(epsilon, rows)),
        }
        return cls(epsilon=epsilon, **defaults | rest)

    @property
    def protects(self) -> str:
        """Return the protected unit in words, with the length of its windows."""
        return format_unit(self.unit, self.window)

    @property
    def is_private(self) -> bool:
        """Return whether the loss is finite."""
        return math.isfinite(self.epsilon)

    def with_public(self, *facts: str) -> Self:
        """Return the claim with further facts about the stream declared public.

        Args:
            facts: The facts, as sentences.
        """
        return replace(self, public=self.public + facts)

    def assuming(self, assumption: str) -> Self:
        """Return the claim under one more assumption.

        Args:
            assumption: The assumption, as a sentence.
        """
        return replace(self, assumption=_with_text(self.assumption, assumption))

    def without_memory(self, reason: str) -> Self:
        """Return the claim with no copy of memory covered.

        Args:
            reason: Why it is not covered.
        """
        locations = tuple(location for location in self.locations if location != "memory")
        intrusions = self.intrusions if locations else Intrusions(unannounced=0)
        return replace(self, locations=locations, intrusions=intrusions, note=_with_text(self.note, reason))

    def without_privacy(self, reason: str) -> Self:
        """Return the claim with epsilon = inf, for runs with a noise source that is not secure.

        Args:
            reason: Why there is no privacy.
        """
        return replace(self, epsilon=math.inf, event_epsilon=None, note=reason)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; an infinite loss is the string "inf"."""
        return {
            "epsilon": self.epsilon if self.is_private else "inf",
            "delta": self.delta,
            "unit": self.unit,
            "adjacency": self.adjacency,
            "parts": {name: loss if math.isfinite(loss) else "inf" for name, loss in self.parts.items()},
            "intrusions": {
                "unannounced": "any" if self.intrusions.unannounced < 0 else self.intrusions.unannounced,
                "announced": "any" if self.intrusions.announced < 0 else self.intrusions.announced,
                "per_phase": self.intrusions.per_phase,
                **({"machines": self.intrusions.machines} if self.intrusions.machines > 1 else {}),
                **({"together": self.intrusions.together} if self.intrusions.together else {}),
                **({"freezes": True} if self.intrusions.freezes else {}),
            },
            "inputs": self.inputs,
            "locations": list(self.locations),
            "releases": self.releases if self.releases >= 0 else "any",
            "horizon": self.horizon,
            "public": list(self.public),
            "note": self.note,
            "window": self.window,
            "event_epsilon": self.event_epsilon if self.is_private else None,
            **({"assumption": self.assumption} if self.assumption else {}),
        }

    def rows(self) -> list[tuple[str, str]]:
        """Return the claim as (name, text) rows for tables."""
        loss = "no privacy (epsilon = inf)" if not self.is_private else f"{self.epsilon:.6g}"
        rows = [("epsilon", loss)]
        if self.delta:
            rows.append(("delta", f"{self.delta:.3g}"))
        if self.parts:
            rows.append(
                ("split", ", ".join(f"{loss:.3g} {_PARTS.get(name, name)}" for name, loss in self.parts.items()))
            )
        rows.append(("protects", f"one {self.protects} ({self.adjacency})"))
        if self.event_epsilon is not None and self.is_private:
            rows.append(("one event", f"loses {self.event_epsilon:.6g}"))
        rows.append(("intrusions", f"{self.intrusions} ({' and '.join(self.locations) or 'nowhere'})"))
        if self.assumption:
            rows.append(("assumption", self.assumption))
        rows.append(("inputs", _INPUT_TEXTS[self.inputs]))
        rows.append(("releases", str(self.releases) if self.releases >= 0 else "any number"))
        if self.horizon is not None:
            rows.append(("horizon", f"{self.horizon:,} tick{'' if self.horizon == 1 else 's'}"))
        if self.public:
            rows.append(("public", "; ".join(self.public)))
        if self.note:
            rows.append(("note", self.note))
        return rows

    def __str__(self) -> str:
        return "\n".join(f"{name:<11} {text}" for name, text in self.rows())
