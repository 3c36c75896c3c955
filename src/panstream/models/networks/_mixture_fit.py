"""The mixture closest to noisy one- and two-way tables. Only released tables and public figures are read.

Each component is a tilted copy of one forest (`panstream.models.networks._tilted_forest`), in the simplest case of
independent attributes. The weighted squared distance from the noisy tables is minimised by Adam (Kingma, Ba 2015) on
logits, from components that differ from each other by chance. *When to stop* is learned by thinning
(`panstream.models.networks._measurements`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from panstream.models.networks._measurements import Half, MeasuredTables, normal, spread
from panstream.models.networks._tilted_forest import Floats, ForwardPass, TiltedForest
from panstream.primitives.noise import NoiseSource

HALVES = 4
"""Thinned halves that say how long to fit and which kind of model: the more of them, the less chance decides."""
_RUNS = 4  # fits that are averaged
# Components of a fit: where edges hold what is strongest, fewer do
_PRODUCTS = 100
_FORESTS = 25
_MOST_STEPS = 1500
_STEP = 0.05
_START = 0.3  # standard deviation of the first tilts
_MIXED_IN = 0.02  # of the components' average, in each component

# Some BLAS kernels raise the flag of an invalid operation though all numbers are finite (numpy issue 24067).
_QUIET = np.errstate(invalid="ignore")


class _Fit:
    """One descent: tilts of the components and logits of their weights, with Adam's two moments.

    Single precision is far finer than the noise.
    """

    def __init__(self, tables: MeasuredTables, half: Half, shape: TiltedForest, rng: NoiseSource) -> None:
        self.half = half
        self.shape = shape
        self.goal, self.weights = (
            [array.astype(np.float32) for array in part] for part in (half, (tables.one_weights, tables.pair_weights))
        )
        components = _FORESTS if shape.edges else _PRODUCTS
        self.tilts = (_START * normal(rng, (components, tables.ones.size))).astype(np.float32)
        self.weight_logits = np.zeros(components, np.float32)
        self.scale = np.float32(components / max(tables.one_weights.max(), tables.pair_weights.max()))
        self.moments = [_Adam(self.tilts.shape), _Adam(self.weight_logits.shape)]

    @_QUIET
    def tables(self) -> ForwardPass:
        """Return the model's tables."""
        weights = np.exp(self.weight_logits - self.weight_logits.max())
        return self.shape.tables(weights / weights.sum(), self.tilts)

    @_QUIET
    def step(self) -> ForwardPass:
        """Take one step; return the tables before it."""
        tables = self.tables()
        slopes = zip(self.weights, (tables.ones, tables.pairs), self.goal, strict=True)
        by_weight, by_tilt = self.shape.gradient(tables, *(weight * (got - want) for weight, got, want in slopes))
        by_logit = tables.weights * (by_weight - tables.weights @ by_weight)
        self.tilts -= self.moments[0].move(by_tilt * self.scale)
        self.weight_logits -= self.moments[1].move(by_logit * self.scale)
        return tables


class _Adam:
    """The moments of one array; the second is kept per entry."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.mean = np.zeros(shape, np.float32)
        self.square = np.zeros(shape, np.float32)
        self.steps = 0

    def move(self, gradient: Floats) -> Floats:
        self.steps += 1
        self.mean += np.float32(0.1) * (gradient - self.mean)
        self.square += np.float32(0.01) * (gradient**2 - self.square)
        size = np.sqrt(self.square / np.float32(1 - 0.99**self.steps)) + np.float32(1e-12)
        return np.asarray(np.float32(_STEP / (1 - 0.9**self.steps)) * self.mean / size)


@dataclass(frozen=True, slots=True)
class FitTrial:
    """What fits to thinned tables taught: how many steps to take, and how far they then were from what they did not
    see.
    """

    steps: int
    error: float


def noise_floor(tables: MeasuredTables) -> NDArray[np.float64]:
    """Return the share of records up to which noise hides a category; descents do not start below it."""
    return 0.3 * spread(tables.one_weights) + 1e-9


def product_mixture(tables: MeasuredTables, ones: NDArray[np.float64]) -> TiltedForest:
    """Return the shape of a mixture of products around noisy one-way tables."""
    parts = np.split(np.maximum(ones, noise_floor(tables)), tables.starts[1:])
    return TiltedForest(tables.sizes, [None] * len(parts), [part / part.sum() for part in parts])


def try_mixture(
    tables: MeasuredTables,
    halves: Sequence[Half],
    shapes: Sequence[TiltedForest],
    rng: NoiseSource,
    progress: Callable[[float], None] = lambda done: None,
) -> FitTrial:
    """Fit a mixture to each half, around the shape that was found there, until they are nearest to the other halves."""
    fits = [_Fit(tables, half, shape, rng) for half, shape in zip(halves, shapes, strict=True)]
    best = math.inf
    steps = 0
    step = 0
    while step < _MOST_STEPS and step <= 1.3 * steps + 25:
        fitted_tables = [fit.step() for fit in fits]
        error = sum(
            tables.distance(fit.half, fitted.ones, fitted.pairs)
            for fit, fitted in zip(fits, fitted_tables, strict=True)
        )
        if error < best:
            best = error
            steps = step
        step += 1
        progress(step / _MOST_STEPS)
    return FitTrial(steps, best)


def fit_mixture(
    tables: MeasuredTables,
    shape: TiltedForest,
    steps: int,
    rng: NoiseSource,
    progress: Callable[[float], None] = lambda done: None,
) -> tuple[NDArray[np.float64], list[NDArray[np.float64]]]:
    """Return the weights of the components and each attribute's tilts, the average of four fits of so many steps.

    Rare categories then fade towards the average of all components where noise hides them. Without edges a tilt times
    the shape's one-way table is the component's own table.
    """
    fits = []
    for run in range(_RUNS):
        fit = _Fit(tables, (tables.ones, tables.pairs), shape, rng)
        for _ in range(steps):
            fit.step()
        fits.append((fit.tables(), fit.tilts))
        progress((run + 1) / _RUNS)
    weights = np.concatenate([fitted.weights for fitted, _ in fits]).astype(np.float64)
    weights /= weights.sum()
    margins = np.array([fitted.ones for fitted, _ in fits], np.float64).mean(axis=0)
    measured = tables.pair_weights > 0
    noise = spread(tables.pair_weights).sum(axis=1) / np.maximum(measured.sum(axis=1), 1)
    visible = margins / (margins + noise)
    tilts = np.concatenate([tilts for _, tilts in fits]).astype(np.float64)
    return weights, [_finished(weights, margins[block], visible[block], tilts[:, block]) for block in tables.blocks]


def _finished(
    weights: NDArray[np.float64], margins: NDArray[np.float64], visible: NDArray[np.float64], tilts: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the tilts of an attribute as factors of mean 1 over its one-way table, faded and a little averaged."""

    def factors(logs: NDArray[np.float64]) -> NDArray[np.float64]:
        exponentials = np.exp(logs - logs.max(axis=1, keepdims=True))
        return np.asarray(exponentials / (exponentials @ margins)[:, None])

    first = factors(tilts)
    middle = np.log(weights @ first)
    faded = factors(middle + visible * (np.log(np.maximum(first, 1e-30)) - middle))
    return np.asarray((1 - _MIXED_IN) * faded + _MIXED_IN * (weights @ faded))
