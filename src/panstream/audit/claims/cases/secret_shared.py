"""Two participants: all covered looks at the shipped steps, and controls that violate each assumption.

Noise has e**-kappa = 1/2 and wraps around at 3, so that one draw loses ln 3/2, and two draws together .0606. The claim
is one draw's loss for each answer: an attacker who copied the other participant in that step has its draw.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from panstream.algorithms.secret_shared.counted_bits import NoisyBitCounts
from panstream.algorithms.secret_shared.party import Kind
from panstream.algorithms.secret_shared.retained_bits import RetainedBits
from panstream.algorithms.secret_shared.ring import Ring
from panstream.algorithms.secret_shared.rules import Rule
from panstream.algorithms.secret_shared.running_sums import NoisyRunningSums
from panstream.algorithms.secret_shared.share_rules import Dealt, OverwrittenBits, SaturatingCounters
from panstream.audit.claims.case import Case, ExactLoss
from panstream.audit.claims.cases._secret_shared_variants import (
    BlindedAlike,
    DrawnInFirstStep,
    MaskedAlike,
    MaskedWindowsAlike,
    Named,
    Noisy,
    OneNoise,
    RedrawnOnRetry,
    Retried,
    ReusedNoise,
    Unblinded,
    Unmasked,
)
from panstream.primitives.noise import DiscreteLaplace
from panstream.testing.secret_shared_views import Look, Row, SharedViews, covered_looks

_NOISE = DiscreteLaplace.at_most(math.log(2))
# The loss of one draw, modulo 3 and modulo 2
_ONE = math.log(3 / 2)
_CAPPED = math.log(5 / 4)
_BOTH = math.log(3) + math.log(1 - 3 / 4 + 3 / 4 * 3 / 2)  # one copy of both shares of noised cells, and one answer
_NOTHING, _APPEARS, _LEAVES = ((np.array([h], np.uint8), np.array([v], np.uint8)) for h, v in ((0, 0), (1, 1), (1, 0)))


@dataclass(frozen=True)
class _Measure:
    """Computes the largest loss of one program over some sets of looks."""

    views: Callable[[], SharedViews]
    program: tuple[Kind, ...]
    actions: tuple[Dealt, ...]
    looks: Sequence[Iterable[Look]] = ()
    max_active_steps: int | None = None  # of the user

    def __call__(self) -> ExactLoss:
        """Return the largest loss and the looks that attain it."""
        views = self.views()
        worst = -1.0
        shown = frozenset[Look]()
        for looks in map(frozenset, self.looks or covered_looks(len(self.program))):
            loss = views.loss(self.program, self._streams(), looks)
            if loss > worst:
                worst = loss
                shown = looks
        steps = "-".join(self.program)
        seen = ", ".join(f"{who} in {period} {number}" for who, period, number in sorted(shown, key=lambda one: one[2]))
        return ExactLoss(loss=worst, witness=f"{steps}; seen: {seen or 'answers only'}")

    def _streams(self) -> list[Row]:
        choices = [range(len(self.actions)) if kind == "rows" else (None,) for kind in self.program]
        return [
            tuple(None if choice is None else self.actions[choice] for choice in stream)
            for stream in product(*choices)
            if self.max_active_steps is None or sum(bool(choice) for choice in stream) <= self.max_active_steps
        ]


def _of(rule: Rule, form: type[SharedViews] = SharedViews, width: int = 1) -> Callable[[], SharedViews]:
    return lambda: form(rule, width=width)


def _bits(form: type[SharedViews] = SharedViews, releases: int = 1, modulus: int = 3) -> Callable[[], SharedViews]:
    return _of(OverwrittenBits(cells=1, noise=_NOISE, releases=releases, ring=Ring(modulus)), form)


def _lasting(steps: int) -> list[list[Look]]:
    """Return sets of looks at one participant in all epochs and steps, and at the other in one epoch."""
    look_sets = []
    for who, other, epoch in product("AB", "AB", range(steps + 1)):
        always: list[Look] = [(who, period, number) for period in ("epoch", "step") for number in range(steps + 1)]
        look_sets += [[*always, (other, "epoch", epoch)]] if other != who else []
    return look_sets


_RETRY: tuple[Kind, ...] = ("rows", "answers", "rows", "answers")


def _around_a_retry() -> list[frozenset[Look]]:
    """Return the covered looks at a program whose first two rounds are aborted, so that they end no epoch."""
    return [
        looks
        for looks in covered_looks(len(_RETRY))
        if len({who for who, period, number in looks if period == "epoch" and number <= 2}) == 1
    ]


def _sum(ticks: int, modulus: int = 3) -> NoisyRunningSums:
    return NoisyRunningSums(width=1, radices=(ticks,), noise=_NOISE, releases=ticks, ring=Ring(modulus, wide=True))


def _live(ticks: int, noise: DiscreteLaplace = _NOISE) -> NoisyBitCounts:
    return NoisyBitCounts(cells=1, radices=(ticks,), noise=noise, releases=ticks, ring=Ring(2))


def _all_or_handed_over() -> list[frozenset[Look]]:
    """Return the looks at the first participant at all times, and those at it until a tick and at the other after."""
    return [
        looks
        for looks in covered_looks(4)
        if {who for who, period, number in looks if period == "epoch" and number <= 2} == {"A"}
        and len({who for who, period, number in looks if period == "epoch" and number >= 3}) == 1
    ]


def _windows(form: type[SharedViews] = SharedViews) -> Callable[[], SharedViews]:
    rule = RetainedBits(cells=1, lags=1, noise=_NOISE, pair_noise=_NOISE, releases=2, ring=Ring(2))
    return _of(rule, form)


def _settled(steps: int) -> list[frozenset[Look]]:
    """Return the covered looks that change the participant at most once, after the first answer."""
    changes = {(*first * 3, *second * (steps - 2)) for first in "AB" for second in "AB"}
    return [
        looks
        for looks in covered_looks(steps)
        if tuple(who for _, who in sorted((n, who) for who, period, n in looks if period == "epoch")) in changes
    ]


_ADDED = (np.zeros(1, np.int64),), (np.ones(1, np.int64),)
_ARRIVES = (np.zeros(1, np.uint8),), (np.full(1, 2, np.uint8),)


def _sound() -> Iterator[Case]:
    present = (_NOTHING, _APPEARS)
    moved = SaturatingCounters(cells=1, tau=2, low=1, noise=_NOISE, ring=Ring(2))
    twice = [looks for looks in covered_looks(3) if {who for who, _, epoch in looks if epoch in (1, 3)} < {"A", "B"}]
    for name, claimed, measure in (
        ("bits", _ONE, _Measure(_bits(), ("rows", "answers"), (_NOTHING, _APPEARS, _LEAVES))),
        ("two answers", 2 * _ONE, _Measure(_bits(releases=2), ("rows", "answers", "answers"), present, twice)),
        ("thermometers", _CAPPED, _Measure(_of(moved, width=2), ("rows", "answers"), _ARRIVES)),
        ("sums", _CAPPED, _Measure(_of(_sum(1, 2)), ("rows", "idle", "answers"), _ADDED)),
        ("a step taken again", _CAPPED, _Measure(_bits(Retried, modulus=2), _RETRY, present, _around_a_retry())),
        ("a tick taken again", _CAPPED, _Measure(_of(_sum(1, 2), Retried), _RETRY, _ADDED, _around_a_retry())),
        ("live counts, one tick", _CAPPED, _Measure(_of(_live(1)), ("rows", "answers"), present)),
        ("live counts", 2 * _CAPPED, _Measure(_of(_live(2)), _RETRY, present, _all_or_handed_over())),
        (
            "retained windows",
            3 * _CAPPED,  # of the number of ones, and of the differences from the window before and the one after
            _Measure(_windows(), ("rows", "answers", "answers"), present, _settled(3)),
        ),
        ("sums, two ticks", _CAPPED, _Measure(_of(_sum(2, 2)), ("rows", "answers", "answers"), _ADDED)),
    ):
        yield Case(name=f"Two machines, {name}", kind="production", claimed=claimed, exact=measure)
    measure = _Measure(_bits(Noisy), ("rows", "answers", "rows"), present, _lasting(3))
    yield Case(name="Two machines, noisy cells, both once", kind="production", claimed=_BOTH, exact=measure)


def _mistakes() -> Iterator[Case]:
    a = "A"
    b = "B"
    first_only = ((a, "epoch", 1), (b, "epoch", 2))

    def case(
        name: str,
        represents: str,
        views: Any,
        steps: str,
        looks: Iterable[Look],
        claimed: float = 0.0,
        max_active_steps: int | None = 1,
    ) -> Case:
        program: Any = tuple(steps.split("-"))
        actions = _ADDED if views is sums else (_NOTHING, _APPEARS)
        measure = _Measure(views, program, actions, [looks], max_active_steps)
        return Case(name=name, kind="control", claimed=claimed, exact=measure, represents=represents)

    sums = _of(_sum(1), Unblinded)
    sound = _bits()
    yield case(
        "Both machines in one epoch", "two looks that no step separates", sound, "rows",
        [(a, "epoch", 1), (b, "epoch", 1)],
    )  # fmt: skip
    yield case(
        "One machine in a step, the other right after", "a look in a step counts for the epoch after it", sound, "rows",
        [(a, "step", 1), (b, "epoch", 1)],
    )  # fmt: skip
    yield case(
        "Idle epoch without blinding", "shares that stay as they are while no rows come", _bits(Unblinded),
        "rows-idle", first_only,
    )  # fmt: skip
    yield case(
        "The same blinding twice", "a blinding key used for two steps", _bits(BlindedAlike), "rows-idle-idle",
        [(a, "epoch", 1), (a, "epoch", 2), (b, "epoch", 3)],
    )  # fmt: skip
    yield case(
        "Fresh shares for touched cells only", "steps that leave untouched cells alone", _bits(Named), "rows-rows",
        first_only,
    )  # fmt: skip
    yield case(
        "Touched cells named", "a message that says which cells a batch touches", _bits(Named), "rows",
        [(a, "step", 1)],
    )  # fmt: skip
    yield case(
        "The same input mask twice", "a seed dealt for two steps", _bits(MaskedAlike), "rows-rows",
        [(a, "step", 1), (a, "step", 2)],
    )  # fmt: skip
    yield case(
        "One mask for two windows", "correlated randomness that is used twice in an answer",
        _windows(MaskedWindowsAlike), "rows-answers", [(a, "step", 2)], claimed=_CAPPED,
    )  # fmt: skip
    yield case(
        "Blinding by the front end alone", "machines that draw no key of their own", _bits(Unblinded), "rows-rows",
        [(a, "epoch", 1), ("F", "step", 2), (b, "epoch", 2)],
    )  # fmt: skip
    yield case(
        "Front end and a machine in one step", "a front end that runs on one of the machines", sound, "rows-rows",
        [(a, "step", 2), ("F", "step", 2)],
    )  # fmt: skip
    yield case(
        "Noise of one machine only", "noise known to the machine that drew it", _bits(OneNoise), "rows-answers",
        [(a, "step", 1), (a, "step", 2)], claimed=_ONE,
    )  # fmt: skip
    yield case(
        "Answers without a common mask", "parts of an answer that say more than their sum", _bits(Unmasked),
        "rows-answers", [("F", "step", 2)], claimed=_two_draws(),
    )  # fmt: skip
    yield case(
        "Stored noise in clear", "a tree whose nodes' noise is not held as shares", sums, "rows-idle-answers",
        [(a, "epoch", 1), (b, "epoch", 2)], claimed=_ONE,
    )  # fmt: skip
    watched = [(a, period, number) for period in ("epoch", "step") for number in range(5)]
    yield case(
        "Release drawn again after a crash, two machines", "a machine that opens an answer before the step is decided",
        _bits(RedrawnOnRetry, modulus=2), "-".join(_RETRY), watched, claimed=_CAPPED,
        max_active_steps=None,
    )  # fmt: skip
    yield case(
        "Noise used again for other rows", "a retry that draws no noise and has other rows",
        _bits(ReusedNoise, 2, 2), "rows-answers-rows-answers", watched, claimed=2 * _CAPPED,
    )  # fmt: skip
    yield case(
        "Half of the noise in the nodes of a live count", "nodes charged for one machine's draw of twice the rate",
        _of(_live(1, DiscreteLaplace.at_most(2 * math.log(2)))), "rows-answers", [(a, "step", 1), (a, "step", 2)],
        claimed=_CAPPED,
    )  # fmt: skip
    yield case(
        "Noisy cells, both machines twice", "two epochs in which both machines are seen", _bits(Noisy), "rows-rows",
        [(who, "epoch", epoch) for who in (a, b) for epoch in (1, 2)], claimed=_BOTH,
    )  # fmt: skip
    yield case(
        "Cells drawn at the start only", "noise that an arrival replaces by the truth", _bits(DrawnInFirstStep),
        "rows-rows", [(a, "epoch", 2), (b, "epoch", 2)], claimed=_BOTH,
    )  # fmt: skip
    yield Case(
        name="Half of the noise from each machine",
        kind="control",
        claimed=1.0,
        exact=_halves,
        represents="noise that adds up to one draw, of which an observer of one machine knows half",
    )


def _two_draws() -> float:
    """Return the loss of two draws together, modulo 3."""
    one = np.array([9.0, 6.0, 6.0]) / 21.0
    both = np.array([sum(one[i] * one[(k - i) % 3] for i in range(3)) for k in range(3)])
    return float(np.log(both.max() / both.min()))


def _halves(epsilon: float = 1.0) -> ExactLoss:
    """Return the loss of half a draw: the difference of two NB(1/2, e**-epsilon) numbers."""
    q = math.exp(-epsilon)
    size = 1 << 10
    k = np.arange(1, size)
    half = np.concatenate([[1.0], np.cumprod(q * (k - 0.5) / k)]) * math.sqrt(1 - q)
    chances = np.array([float(half[: size - lag] @ half[lag:]) for lag in range(64)])
    loss = float(np.log(chances[:-1] / chances[1:]).max())
    return ExactLoss(loss=loss, witness="the answer, and one machine's own draw")


CASES = (_sound, _mistakes)
