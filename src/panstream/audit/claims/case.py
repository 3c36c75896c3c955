"""Cases of the audit (an algorithm, its claimed loss and how to measure it) and findings about them."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from panstream.errors import InvalidParameter, MissingExtra
from panstream.primitives import validation as checks

Kind = Literal["production", "control"]
Verdict = Literal["holds", "fails", "caught", "missed"]
_SHOWN = (
    "name", "kind", "claimed", "exact", "lower_bound", "verdict", "witness", "event", "advantage", "allowed_advantage",
    "runs", "represents",
)  # fmt: skip
_SLACK = 1e-7  # tolerance of the linear program; enumerated losses are exact to more than twelve digits


@dataclass(frozen=True, slots=True)
class Trial:
    """An experiment with shipped code and real randomness, with an event that was fixed before it is run.

    ``happens(True)`` runs it on the stream under which the event is more likely, ``happens(False)`` on its neighbour.
    """

    event: str
    happens: Callable[[bool], bool]
    attack: bool = False  # the event is an attacker's guess "the member is in", so its advantage is reported
    share: float = 1.0  # runs on the first stream, as a fraction of those on its neighbour


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactLoss:
    """The exact loss, the streams and the view that attain it, and the same view as a trial."""

    loss: float
    witness: str = ""
    trial: Trial | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One claim to audit.

    ``exact`` computes the exact loss; ``trial`` is an event fixed beforehand, by default the worst view of ``exact``. A
    production case passes if neither exceeds ``claimed``; a control is a known mistake and passes if at least one does.
    The quick audit runs the trials of ``sampled`` cases only, ``quick_runs`` times; the full audit all, ``runs`` times.
    """

    name: str
    kind: Kind
    claimed: float
    exact: Callable[[], ExactLoss] | None = None
    trial: Trial | None = None
    algorithm: Any = None
    represents: str = ""
    sampled: bool = False
    runs: int = 4_000
    quick_runs: int = 2_000

    def __post_init__(self) -> None:
        checks.require_at_least(0, claimed=self.claimed)
        if self.exact is None and self.trial is None:
            raise InvalidParameter(f"case {self.name!r} has nothing to measure")
        if self.kind not in ("production", "control"):
            raise InvalidParameter(f"kind must be production or control, got kind={self.kind!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of the audit of one case."""

    name: str
    kind: Kind
    claimed: float
    exact: float | None
    lower_bound: float | None
    witness: str
    event: str = ""
    advantage: float | None = None
    runs: int = 0
    represents: str = ""

    def exceeds(self, loss: float | None) -> bool:
        """Return whether a loss exceeds the claim by more than the numerical tolerance."""
        return loss is not None and loss > self.claimed + _SLACK * max(1.0, self.claimed)

    @property
    def verdict(self) -> Verdict:
        """Return the verdict: a loss above the claim fails a production case and is required of a control."""
        exceeded = self.exceeds(self.exact) or self.exceeds(self.lower_bound)
        if self.kind == "production":
            return "fails" if exceeded else "holds"
        return "caught" if exceeded else "missed"

    @property
    def is_expected(self) -> bool:
        """Return whether a production case holds, or a control was caught."""
        return self.verdict in ("holds", "caught")

    @property
    def allowed_advantage(self) -> float:
        """Return the largest advantage over guessing that the claim allows: (e**claimed - 1)/(e**claimed + 1)."""
        return math.tanh(self.claimed / 2)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; an infinite loss is the string "inf"."""
        return {name: _plain(getattr(self, name)) for name in _SHOWN}


def _plain(value: Any) -> Any:
    return "inf" if isinstance(value, float) and math.isinf(value) else value


def scipy_function(module: str, name: str, feature: str) -> Any:
    """Return a function of SciPy; raise MissingExtra, which names ``feature``, if SciPy is not installed."""
    try:
        return getattr(importlib.import_module(f"scipy.{module}"), name)
    except ImportError:
        raise MissingExtra(feature, "audit") from None
