"""A plain twin of the tree counters, one number at a time, that can also be built wrong on purpose."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from panstream.algorithms.continual.tree_base import Tree
from panstream.core.estimate import Estimate
from panstream.primitives.codec import noised, public
from panstream.primitives.noise import DiscreteLaplace, NoiseSource
from panstream.privacy.claim import Claim


@dataclass
class TwinState:
    open: list[int] = noised(default_factory=list)
    draws: list[int] = public(default_factory=list)
    closed: list[list[tuple[float, float]]] = public(default_factory=list)  # (estimate, variance in draws) per level
    past: list[tuple[float, float]] = public(default_factory=list)
    epoch: int = public(default=0)


@dataclass
class TwinTree:
    """Follows the shape and the laws of ``tree``; the flags leave out what the proof needs."""

    tree: Tree
    start_noise: bool = True
    release_noise: bool = True
    leaf_start_noise: bool = True
    charged_levels: int | None = None  # how many levels epsilon is shared between
    answers: list[float] = field(default_factory=list)
    variances: list[float] = field(default_factory=list)

    @property
    def one_step(self) -> bool:
        return self.tree.one_step_ticks

    def law(self, epoch: int) -> DiscreteLaplace:
        if self.charged_levels is None:
            return self.tree.engine.law(epoch)
        return DiscreteLaplace.at_most(self.tree.epsilon / self.charged_levels)

    def _noise(self, epoch: int, rng: NoiseSource, wanted: bool) -> int:
        drawn = np.zeros(1, np.int64)
        if wanted:
            rng.add_discrete_laplace(drawn, self.law(epoch))
        return int(drawn[0])

    def initial_state(self, rng: NoiseSource) -> TwinState:
        state = TwinState()
        self._open_all(state, rng)
        return state

    def _open_all(self, state: TwinState, rng: NoiseSource) -> None:
        rows = self.tree.engine.shape(state.epoch).rows
        wanted = [self._starts(level) for level in range(rows)]
        state.open = [self._noise(state.epoch, rng, start) for start in wanted]
        state.draws = [int(start) for start in wanted]
        state.closed = [[] for _ in range(rows)]

    def _starts(self, level: int) -> bool:
        return self.start_noise and (level > 0 or (self.leaf_start_noise and not self.one_step))

    def batch(self, values: Any) -> int:
        return sum(values)

    def update(self, state: TwinState, batch: int, rng: NoiseSource) -> None:
        state.open = [value + batch for value in state.open]

    def refresh(self, state: TwinState, rng: NoiseSource) -> None:
        for level in range(1 if self.one_step else 0, len(state.open)):
            state.open[level] += self._noise(state.epoch, rng, True)
            state.draws[level] += 1

    def tick(self, state: TwinState, rng: NoiseSource) -> Estimate:
        return self._close(state, rng, True)

    def tick_many(self, state: TwinState, values: Any, rng: NoiseSource) -> Estimate:
        estimates = []
        for position, value in enumerate(values):
            self.update(state, value, rng)
            estimates.append(self._close(state, rng, position == len(values) - 1))
        return estimates[-1]

    def _close(self, state: TwinState, rng: NoiseSource, last_of_call: bool) -> Estimate:
        shape = self.tree.engine.shape(state.epoch)
        epoch = state.epoch
        weights = list(shape.weights)
        released = []
        level = 0
        while True:
            own = state.open[level] + self._noise(epoch, rng, self.release_noise)
            own_draws = state.draws[level] + int(self.release_noise)
            released.append(own)
            if level == 0:
                node = (float(own), float(own_draws))
            else:
                below, below_draws = (sum(part) for part in zip(*state.closed[level - 1], strict=True))
                precision = 1 / own_draws + 1 / below_draws
                node = ((own / own_draws + below / below_draws) / precision, 1 / precision)
                state.closed[level - 1] = []
            state.closed[level].append(node)
            digits = [len(nodes) for nodes in state.closed[: len(weights)]]
            spent = sum(weight * digit for weight, digit in zip(weights, digits, strict=True))
            if level == shape.rows - 1 or spent <= shape.capacity:
                break
            level += 1
        if shape.rooted and level == shape.rows - 1:
            (node,) = state.closed[level]
            state.past.append((node[0], node[1] * self.law(epoch).variance))
            state.epoch += 1
            self._open_all(state, rng)
        else:
            for opened in range(level + 1):
                starts = self._starts(opened) and (opened > 0 or last_of_call)
                state.open[opened] = self._noise(epoch, rng, starts)
                state.draws[opened] = int(starts)
        unit = self.law(state.epoch).variance
        nodes = [(value, draws * unit) for row in state.closed for value, draws in row] + state.past
        value, variance = (sum(part) for part in zip(*nodes, strict=True))
        self.answers.append(value)
        self.variances.append(variance)
        return Estimate(
            value=value, standard_error=variance**0.5, claim=Claim(epsilon=1.0, unit="event"), released=tuple(released)
        )
