"""What one person loses over a period: to all answers, and to one copy of everything that is readable.

A query starts a state for every window and drops it when the window is over, so a copy shows the states that are open
at that moment only; of all others the intruder has the answers. Proof: docs/proofs/person-period.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal, get_args

from panstream.errors import InvalidParameter
from panstream.primitives import validation as checks
from panstream.primitives.durations import format_duration
from panstream.privacy.bitmap_loss import outputs_loss, started_outputs_loss
from panstream.privacy.claim import Claim
from panstream.privacy.joint_loss import present_probability
from panstream.privacy.odds import odds_bound
from panstream.privacy.person_renyi import renyi_epsilon
from panstream.privacy.rounding import round_up, rounded_up, sum_rounded_up, times_rounded_up

BoundedBy = Literal["sender", "file", "shape", "two_party", "declared"]
PERIOD = 30 * 86_400.0
_MAX_RELEASES = 48  # of one state: the exact loss of more takes too long to plan with
_WORTH = 0.999  # of a pure total: a smaller gain is not worth a delta
_MARGIN = 1e-12  # far above the floating-point error of outputs_loss


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowLoss:
    """Loss of one person to one state, from its start until it is dropped.

    Attributes:
        joint: Loss of one copy of the state, at any time, together with all its answers.
        answers: Loss of the answers alone; at most ``joint``.
        unused: Loss of a copy made before any row of the person was applied, with all answers; at most ``joint``.
        delta: Delta of all three; 0 for pure losses.
        rho_joint: Loss of the state with its answers as zCDP, for Gaussian noise; None for pure losses.
        rho_answers: Loss of the answers alone as zCDP.
        later: Loss of a copy and all later answers to somebody who has seen the answers before; ``joint + answers``
            unless less is proved.
        states: Number of states with noise of their own that the losses are of, in equal parts.
        closed: Loss of a copy made after the window was over, with all answers, where its cells are retained; at least
            ``answers``. None if they are dropped.
    """

    joint: float
    answers: float
    unused: float
    delta: float = 0.0
    rho_joint: float | None = None
    rho_answers: float | None = None
    later: float | None = None
    states: int = 1
    closed: float | None = None

    def __post_init__(self) -> None:
        if self.closed is not None and not self.answers <= self.closed <= self.joint:
            raise InvalidParameter(f"closed must be in [answers, joint], got closed={self.closed}")
        if not 0.0 <= self.answers <= self.joint or not 0.0 <= self.unused <= self.joint:
            raise InvalidParameter(
                f"answers and unused must be in [0, joint], got {self.answers}, {self.unused} and joint={self.joint}"
            )

    @classmethod
    def of_claim(cls, claim: Claim) -> WindowLoss:
        """Return the loss of a state whose answers are charged as much as a copy with them."""
        return cls(joint=claim.epsilon, answers=claim.epsilon, unused=claim.epsilon, delta=claim.delta)

    @classmethod
    def of_bits(cls, joint: float, p0: float, p1: float, kappa: float, releases: int) -> WindowLoss:
        """Return the loss of bits that start as coins of ``p0`` and that every arrival draws again from ``p1``.

        A release shows a sum with discrete Laplace noise of rate ``kappa``, which one bit moves by one. Without a copy
        the bit was drawn from p0 or p1; in a copy that was made before the person came, it is 0 or 1, and she draws
        it again afterwards, or not.                                                        [person-period.md, Lemma 2]

        With many releases the joint loss stands for all: the time taken grows with the cube of their number. After the
        only release of a bit with p0 = 1 - p1, a copy shows no more than ``joint``         [person-period.md, Lemma 5].
        """
        if math.isinf(joint) or releases > _MAX_RELEASES:
            return cls(joint=joint, answers=joint, unused=joint)
        answers = outputs_loss(p0, p1, kappa, releases)
        unused = max(outputs_loss(bit, p1, kappa, releases) for bit in (0.0, 1.0))
        symmetric = releases == 1 and abs(p0 + p1 - 1.0) < _MARGIN
        return cls(
            joint=joint,
            answers=_at_most(answers, joint),
            unused=_at_most(unused, joint),
            later=joint if symmetric else None,
        )

    @classmethod
    def of_started_bits(cls, joint: float, epsilon_state: float, kappa: float, start: float) -> WindowLoss:
        """Return the loss of symmetric bits with one answer, whose number of ones was released before any row, too.

        [person-period.md, Lemma 6]
        """
        if math.isinf(joint):
            return cls(joint=joint, answers=joint, unused=joint)
        p1 = present_probability(epsilon_state)
        unused = max(outputs_loss(bit, p1, kappa, 1) for bit in (0.0, 1.0))
        answers = started_outputs_loss(1.0 - p1, p1, kappa, start)
        return cls(joint=joint, answers=_at_most(answers, joint), unused=_at_most(unused, joint))

    @property
    def after(self) -> float:
        """Return the loss of a copy and all later answers to somebody who has seen the answers before."""
        return sum_rounded_up([self.joint, self.answers]) if self.later is None else self.later

    def times(self, states: int) -> WindowLoss:
        """Return the loss to several states with noise of their own, in each of which the person may be."""
        return WindowLoss(
            joint=times_rounded_up(self.joint, states),
            answers=times_rounded_up(self.answers, states),
            unused=times_rounded_up(self.unused, states),
            delta=times_rounded_up(self.delta, states),
            rho_joint=None if self.rho_joint is None else times_rounded_up(self.rho_joint, states),
            rho_answers=None if self.rho_answers is None else times_rounded_up(self.rho_answers, states),
            later=None if self.later is None else times_rounded_up(self.later, states),
            states=self.states * states,
            closed=None if self.closed is None else times_rounded_up(self.closed, states),
        )


def windows_open(window: float, lateness: float) -> int:
    """Return how many windows can have rows at one moment [person-period.md, Lemma 1]."""
    return math.ceil(Fraction(lateness) / Fraction(window)) + 1


def _at_most(loss: float, joint: float) -> float:
    return min(loss * (1.0 + _MARGIN) + _MARGIN, joint)


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonShare:
    """What one query takes of a person's loss over a period.

    Attributes:
        name: The query.
        loss: Loss to the state of one window; None if nothing bounds the rows of one person in it.
        windows: States that can hold rows of one period.
        open: How many of them can be open at the moment of a copy.
        opening: How many more can have been started by then and hold no row of the person that was committed: old
            states stay readable until new ones are on disk.
        retained: How many windows that are over a copy shows besides.
        bounded_by: What bounds the person's rows in a state.
        contributions: The bound on rows per state, if there is one.
        reason: Why there is no bound.
    """

    name: str
    loss: WindowLoss | None
    windows: int = 1
    open: int = 1
    opening: int = 0
    retained: int = 0
    bounded_by: BoundedBy | None = None
    contributions: int | None = None
    reason: str = ""

    def __post_init__(self) -> None:
        checks.require_at_least(1, windows=self.windows)
        if not (self.open >= 0 and self.opening >= 0 and self.open + self.opening <= self.windows):
            raise InvalidParameter(
                f"open + opening must be in 0..windows={self.windows}, got {self.open} and {self.opening}"
            )
        if not 0 <= self.retained <= self.windows - self.open - self.opening:
            raise InvalidParameter(
                f"retained must be in 0..{self.windows - self.open - self.opening}, got retained={self.retained}"
            )
        if (self.loss is None) == (not self.reason):
            raise InvalidParameter("a share without a loss needs a reason, and one with a loss must not have one")
        if self.bounded_by is not None and self.bounded_by not in get_args(BoundedBy):
            raise InvalidParameter(f"bounded_by must be one of {', '.join(get_args(BoundedBy))}")

    @classmethod
    def of_windows(
        cls,
        name: str,
        loss: WindowLoss | None,
        *,
        window: float | None,
        period: float,
        lateness: float = 0.0,
        overlap: bool = False,
        retained: int = 0,
        **rest: Any,
    ) -> PersonShare:
        """Return the share of a query that starts afresh in every window, or never.

        A period meets at most ceil(period/window) + 1 windows, and at one moment ceil(lateness/window) + 1 of them can
        have rows. Where windows ``overlap``, as many more can be started by the batch that ends those.
                                                                                            [person-period.md, Lemma 1]

        Args:
            name: The query.
            loss: Loss to the state of one window.
            window: Seconds of a window; None if the query has one state for all time.
            period: Seconds of the period.
            lateness: Seconds that a window waits for late rows.
            overlap: Whether a copy can show states that are over together with those that follow them.
            retained: How many windows that are over stay in the state.
            rest: Other fields of the share.
        """
        if window is None:
            return cls(name=name, loss=loss, **rest)
        windows = math.ceil(Fraction(period) / Fraction(window)) + 1
        most_open = windows_open(window, lateness)
        open_ = min(most_open, windows)
        opening = min(most_open, windows - open_) if overlap else 0
        return cls(
            name=name,
            loss=loss,
            windows=windows,
            open=open_,
            opening=opening,
            retained=min(retained, windows - open_ - opening),
            **rest,
        )

    @property
    def epsilon(self) -> float:
        """Return the loss over the period; inf if there is no bound.

        That is the answers of all windows, and what one copy adds.                        [person-period.md, Theorem 1]
        """
        if self.loss is None or math.isinf(self.loss.joint):
            return math.inf
        return round_up(self.windows * Fraction(self.loss.answers) + Fraction(self.of_copy))

    @property
    def of_answers(self) -> float:
        """Return the loss to the answers of all windows."""
        return math.inf if self.loss is None else times_rounded_up(self.loss.answers, self.windows)

    @property
    def of_copy(self) -> Fraction | float:
        """Return exactly what a copy of the states that are readable at one moment adds."""
        if self.loss is None or math.isinf(self.loss.joint):
            return math.inf
        answers = Fraction(self.loss.answers)
        copied = self.open * (Fraction(self.loss.joint) - answers)
        if self.loss.closed is not None:  # [retention.md, Theorem 2]
            copied += self.retained * (Fraction(self.loss.closed) - answers)
        return copied + self.opening * max(Fraction(self.loss.unused) - answers, Fraction(0))

    @property
    def delta(self) -> float:
        """Return the delta over the period: that of every window."""
        return 0.0 if self.loss is None else times_rounded_up(self.loss.delta, self.windows)

    @property
    def own_delta(self) -> float:
        """Return the delta over the period if no zCDP is known: what the share takes of the total's delta."""
        return self.delta if self.loss is not None and self.loss.rho_joint is None else 0.0

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; a loss without a bound is the string "inf"."""
        loss = self.loss
        return {
            "name": self.name,
            "epsilon": _plain(self.epsilon),
            "delta": self.delta,
            "windows": self.windows,
            "open": self.open,
            "opening": self.opening,
            "retained": self.retained,
            "answers": None if loss is None else _plain(loss.answers),
            "joint": None if loss is None else _plain(loss.joint),
            "contributions": self.contributions,
            "bounded_by": self.bounded_by,
            "reason": self.reason,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonTotal:
    """What one person can lose in any period to all queries together and one copy of everything that is readable.

    Attributes:
        period: Its length in seconds.
        shares: One per query.
        limit: The declared budget, if there is one.
        delta: The declared delta; 0 if there is none, then the loss is stated at the sum of the queries' own.
        copies: How many copies there may be: one, and those that were announced.
    """

    period: float
    shares: tuple[PersonShare, ...]
    limit: float | None = None
    delta: float = 0.0
    copies: int = 1

    @property
    def epsilon(self) -> float:
        """Return the loss to all queries together, at ``stated_delta``; inf if one has no bound.

        The losses of all queries added up, or if that is less, what their Rényi divergences give at the delta.
                                                                                   [person-period.md, Theorems 1 to 4]
        """
        return _stated(self)[0]

    @property
    def stated_delta(self) -> float:
        """Return the delta of ``epsilon``: at most the declared one, unless the queries' own deltas exceed it."""
        return _stated(self)[1]

    @property
    def is_bounded(self) -> bool:
        """Return whether every query bounds the rows of one person."""
        return math.isfinite(self.epsilon)

    @property
    def unbounded(self) -> tuple[PersonShare, ...]:
        """Return the queries that have no bound."""
        return tuple(share for share in self.shares if math.isinf(share.epsilon))

    @property
    def bounded(self) -> PersonTotal:
        """Return the total of the queries that have a bound."""
        shares = tuple(share for share in self.shares if math.isfinite(share.epsilon))
        return PersonTotal(period=self.period, shares=shares, delta=self.delta, copies=self.copies)

    def text(self, person: str = "user") -> str:
        """Return the total in words.

        >>> loss = WindowLoss(joint=1.0, answers=0.05, unused=0.1)
        >>> share = PersonShare.of_windows("visitors", loss, window=86_400.0, period=PERIOD)
        >>> PersonTotal(period=PERIOD, shares=(share,)).text()
        'one user, any 30 days, all queries, one intrusion: epsilon 2.5'
        """
        subject = f"one {person}, any {format_duration(self.period)}, "
        if self.is_bounded:
            return f"{subject}all queries, one intrusion: {_loss(self)}"
        names = ", ".join(repr(share.name) for share in self.unbounded)
        rest = self.bounded
        others = f"{len(rest.shares)} other {'query' if len(rest.shares) == 1 else 'queries'}"
        tail = f"; {others}: {_loss(rest)}" if rest.shares else ""
        return f"{subject}all queries, one intrusion: not bounded by {names}{tail}"

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; a total without a bound is the string "inf"."""
        bounded = self.bounded
        loss, chance = odds_bound(bounded.epsilon, bounded.stated_delta)
        return {
            "period": self.period,
            "epsilon": _plain(self.epsilon),
            "delta": self.stated_delta,
            "bounded_total": {
                "epsilon": bounded.epsilon,
                "delta": bounded.stated_delta,
                "loss": loss,
                "chance": chance,
            },
            "limit": self.limit,
            "bounded": self.is_bounded,
            "reason": "; ".join(dict.fromkeys(f"{share.name!r}: {share.reason}" for share in self.unbounded)),
            "shares": [share.to_json() for share in self.shares],
        }


@lru_cache(maxsize=256)
def _stated(total: PersonTotal) -> tuple[float, float]:
    """Return epsilon and delta of a total."""
    added = sum_rounded_up(share.epsilon for share in total.shares)
    added_delta = sum_rounded_up(share.delta for share in total.shares)
    delta = total.delta or added_delta
    if not delta or math.isinf(added):
        return added, added_delta
    epsilon = renyi_epsilon(total.shares, delta, total.copies)
    if epsilon < _WORTH * added or (added_delta > delta and math.isfinite(epsilon)):
        return epsilon, delta
    return added, added_delta


def _loss(total: PersonTotal) -> str:
    delta = total.stated_delta
    return f"epsilon {rounded_up(total.epsilon)}" + (f", delta {delta:.2g}" if delta else "")


def _plain(epsilon: float) -> float | str:
    return epsilon if math.isfinite(epsilon) else "inf"
