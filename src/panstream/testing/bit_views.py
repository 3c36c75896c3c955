"""The view of one user's bit in one copy of the state and all answers, and the exact losses of that view.

Given all other users, a view is a list of numbers, each an integer combination of the bit at the ticks plus draws. The
combinations and the draws are measured by running the algorithm with scripted coins and scripted noise. The losses are
sums over all histories of the bit and do not depend on how the algorithm works.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.noise import Coin
from panstream.testing.sources import ScriptedSource

Floats = NDArray[np.float64]
Pattern = tuple[int, ...]  # for every step of the bit: 0 nothing, 1 arrives, -1 leaves, TOGGLE
TOGGLE = 2  # an arrival that flips the bit instead of drawing it again; no algorithm of the library does that

FAR = 9  # represents an output beyond all others, where the likelihood ratio no longer depends on the output
_OUTPUTS = ((-FAR, -1, 0, 1, FAR), (-FAR, 0, FAR), (-FAR, FAR))
_MAX_COMBINATIONS = 20_000


class _Coins(ScriptedSource):
    """Returns scripted coins, one entry per call."""

    __slots__ = ("coins",)

    def __init__(self, coins: Iterable[int], script: Mapping[int, int]) -> None:
        super().__init__(script)
        self.coins = iter(coins)

    def bernoulli(self, coin: Coin, size: int, out: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
        """Return the next coin of the script for all cells."""
        coins = np.empty(size, np.uint8) if out is None else out[:size]
        coins[:] = next(self.coins)
        return coins


@dataclass(frozen=True, slots=True, eq=False)
class BitView:
    """One copy after ``look`` ticks and all answers: each number's weights on the bit, its draws and their rate."""

    look: int | None
    weights: NDArray[np.int64]  # rows: numbers; columns: the bit at ticks 0..T
    draws: NDArray[np.int64]
    kappas: Floats

    def factor(self, number: int, value: int, output: int) -> float:
        """Return the probability of an output, up to a constant, where the data adds up to ``value``."""
        kappa = float(self.kappas[number])
        if abs(output) == FAR:
            return math.exp(kappa * value * (1 if output > 0 else -1))
        k = abs(output - value)
        return math.exp(-kappa * k) * (1.0 if self.draws[number] == 1 else k + 1.0 / math.tanh(kappa))


def views(algorithm: Any, ticks: int) -> list[BitView]:
    """Return the views with a copy after each number of ticks, and with none; the user has an event in every slot."""

    def run(bits: Iterable[int], script: Mapping[int, int]) -> tuple[list[float], list[list[float]], list[float]]:
        rng = _Coins(bits, script)
        state = algorithm.initial_state(rng)
        shown = [float(state.start[0])] if algorithm.strategy.start else []
        states = [state.open[:, 0].astype(float).tolist()]
        for _ in range(ticks):
            algorithm.update(state, algorithm.batch([0]), rng)
            shown += [float(number) for number in algorithm.tick(state, rng).released]
            states.append(state.open[:, 0].astype(float).tolist())
        return shown, states, rng.kappas

    none = [0] * (ticks + 1)
    base = run(none, {})
    kappas = np.array(base[2])

    def column(bits: list[int], script: Mapping[int, int], look: int | None) -> Floats:
        observed = run(bits, script)
        return _seen(observed, look) - _seen(base, look)

    look_views = []
    for look in [None, *range(ticks + 1)]:
        units = [[int(t == slot) for t in range(ticks + 1)] for slot in range(ticks + 1)]
        data = np.array([column(unit, {}, look) for unit in units]).T
        noise = np.array([column(none, {draw: 1}, look) for draw in range(kappas.size)]).T
        mixed = [slot % 2 for slot in range(ticks + 1)]
        assert np.array_equal(column(mixed, {}, look), data @ mixed)  # linear in the bit
        look_views.append(_separate(look, data, noise, kappas))
    return look_views


def _seen(run: tuple[list[float], list[list[float]], list[float]], look: int | None) -> Floats:
    shown, states, _ = run
    return np.array(shown if look is None else [*states[look], *shown])


def _separate(look: int | None, data: Floats, noise: Floats, kappas: Floats) -> BitView:
    """Return an equivalent view whose numbers share no draws: numbers of the copy are subtracted from later ones."""
    data = data.copy()
    noise = noise.copy()
    for row in range(len(noise)):
        for other in range(row + 1, len(noise)):
            shared = (noise[row] != 0) & (noise[other] != 0)
            if shared.any():
                assert np.array_equal(noise[row] != 0, shared)
                noise[other] -= noise[row]
                data[other] -= data[row]
    used = noise.any(axis=1)
    assert not data[~used].any()  # no number without noise depends on the data
    data = data[used]
    noise = noise[used]
    assert (np.abs(noise).sum(axis=0) <= 1).all()
    rates = np.array([kappas[row != 0].min() for row in noise])
    return BitView(look, data.astype(np.int64), (noise != 0).sum(axis=1).astype(np.int64), rates)


class Losses:
    """Exact losses of one view between patterns of one user.

    ``histories`` are all histories of the bit, one row each, at every one of ``points``: the ticks, and -1 for the
    copy, which is a separate point in its slot.
    """

    def __init__(self, view: BitView, ticks: int, p1: float, outputs: tuple[int, ...] | None = None) -> None:
        if outputs is None:  # the finest set whose combinations can all be tried
            outputs = next(some for some in _OUTPUTS if len(some) ** len(view.weights) <= _MAX_COMBINATIONS)
        self.view = view
        self.outputs = outputs
        self.p1 = p1
        self.points = list(range(ticks + 1))
        if view.look is not None:
            self.points.insert(view.look + 1, -1)
        self.histories = np.array(list(itertools.product((0, 1), repeat=len(self.points))), np.int64)
        at_ticks = self.histories[:, [index for index, tick in enumerate(self.points) if tick >= 0]]
        values = at_ticks @ view.weights.T
        self.log_factors = np.log(
            [
                [[view.factor(number, int(value), output) for value in values[:, number]] for output in outputs]
                for number in range(len(view.weights))
            ]
        )  # number, output, history
        shown = None if view.look is None else self.histories[:, view.look + 1]
        self.shown = [np.ones(len(self.histories), bool)] if shown is None else [shown == 0, shown == 1]

    def chances(self, pattern: Pattern) -> Floats:
        """Return the probability of every history for a user with this pattern of events between the points."""
        table = self.histories
        p0 = 1.0 - self.p1
        probabilities = np.where(table[:, 0] == 1, p0, self.p1)
        for point, step in enumerate(pattern, start=1):
            if step in (0, TOGGLE):
                probabilities = probabilities * ((table[:, point] == table[:, point - 1]) == (step == 0))
            else:
                probabilities = probabilities * np.where((table[:, point] == 1) == (step > 0), self.p1, p0)
        return probabilities

    def patterns(self, steps: tuple[int, ...] = (0, 1)) -> list[Pattern]:
        """Return all patterns of a user, with these steps between any two points."""
        return list(itertools.product(steps, repeat=len(self.points) - 1))

    def view_weights(self, pattern: Pattern) -> Floats:
        """Return the weight of every view: each bit in the copy with every combination of outputs."""
        chances = self.chances(pattern)
        rows = []
        for shown in self.shown:
            possible = (chances > 0) & shown
            weights = chances[np.newaxis, possible]
            for factors in np.exp(self.log_factors[:, :, possible]):
                weights = (weights[:, np.newaxis] * factors[np.newaxis]).reshape(-1, weights.shape[1])
            rows.append(weights.sum(axis=1))
        return np.concatenate(rows)

    def climb(self, first: Floats, second: Floats, shown: int, choice: NDArray[np.int64]) -> float:
        """Return the largest log ratio reached by changing one output at a time; ``choice`` is updated to it."""
        both = np.stack([first, second], axis=1)[self.shown[shown]]
        factors = self.log_factors[:, :, self.shown[shown]]
        total = factors[np.arange(len(choice)), choice].sum(axis=0)
        best = -math.inf
        while True:
            previous_best = best
            for number in range(len(choice)):
                weights = np.log(np.exp(total - factors[number, choice[number]] + factors[number]) @ both)
                ratios = weights[:, 0] - weights[:, 1]
                chosen = int(np.argmax(ratios))
                total = total + factors[number, chosen] - factors[number, choice[number]]
                choice[number] = chosen
                best = float(ratios[chosen])
            if best <= previous_best + 1e-12:
                return best

    def of_event(self, steps: tuple[int, ...] = (0, 1)) -> float:
        """Return the largest loss between patterns that differ by one event, over every view."""
        by_pattern = {pattern: self.view_weights(pattern) for pattern in self.patterns(steps)}
        worst = 0.0
        for pattern, weights in by_pattern.items():
            for index, step in enumerate(pattern):
                if step:
                    other = by_pattern[(*pattern[:index], 0, *pattern[index + 1 :])]
                    possible = (weights > 0) | (other > 0)
                    with np.errstate(divide="ignore"):
                        worst = max(worst, float(np.abs(np.log(weights[possible]) - np.log(other[possible])).max()))
        return worst

    def of_user(self, steps: tuple[int, ...] = (0, 1)) -> float:
        """Return the largest loss between any two patterns, over every view."""
        logs = np.log([self.view_weights(pattern) for pattern in self.patterns(steps)])
        return float((logs.max(axis=0) - logs.min(axis=0)).max())
