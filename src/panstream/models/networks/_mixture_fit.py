"""Fit a mixture to noisy one- and two-way tables. Reads released tables and public figures only.

Each component is a tilted copy of one forest (`panstream.models.networks._tilted_forest`), in the simplest case of
independent attributes. Adam (Kingma, Ba 2015) minimises the weighted squared distance from the noisy tables over
logits, from random starting points. The number of steps is chosen by thinning
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
"""Number of thinned halves that choose the number of steps and the kind of model; more of them reduce the variance."""
_RUNS = 4  # fits that are averaged
_PRODUCTS = 100  # components of a mixture of products
_FORESTS = 25  # components of a mixture of forests, whose edges already hold the strongest dependences
_MAX_STEPS = 1500
_STEP = 0.05
_INITIAL_TILT = 0.3  # standard deviation
_MIXED_IN = 0.02  # of the components' average, in each component

# Some BLAS kernels raise the flag of an invalid operation though all numbers are finite (numpy issue 24067).
_QUIET = np.errstate(invalid="ignore")


class _Fit:
    """One descent: tilts of the components and logits of their weights, with Adam's two moments.

    Single precision suffices: its rounding is far below the noise.
    """

    def __init__(self, tables: MeasuredTables, half: Half, shape: TiltedForest, rng: NoiseSource) -> None:
        self.half = half
        self.shape = shape
        self.goal, self.weights = (
            [array.astype(np.float32) for array in part] for part in (half, (tables.one_weights, tables.pair_weights))
        )
        components = _FORESTS if shape.edges else _PRODUCTS
        self.tilts = (_INITIAL_TILT * normal(rng, (components, tables.ones.size))).astype(np.float32)
        self.weight_logits = np.zeros(components, np.float32)
        self.scale = np.float32(components / max(tables.one_weights.max(), tables.pair_weights.max()))
        self.moments = [_Adam(self.tilts.shape), _Adam(self.weight_logits.shape)]

    @_QUIET
    def tables(self) -> ForwardPass:
        """Return the model's tables at the current parameters."""
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
    """Adam's first and second moment of one array."""

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
    """The number of steps at which fits to thinned tables were nearest to the other halves, and that distance."""

    steps: int
    error: float


def noise_floor(tables: MeasuredTables) -> NDArray[np.float64]:
    """Return the share of records below which noise hides a category; no descent starts below it."""
    return 0.3 * spread(tables.one_weights) + 1e-9


def product_mixture(tables: MeasuredTables, ones: NDArray[np.float64]) -> TiltedForest:
    """Return the starting shape of a mixture of products: the noisy one-way tables, raised to the noise floor."""
    raised = np.maximum(ones, noise_floor(tables))
    parts = [raised[block] for block in tables.blocks]
    return TiltedForest(tables.sizes, [None] * len(parts), [part / part.sum() for part in parts])


def try_mixture(
    tables: MeasuredTables,
    halves: Sequence[Half],
    shapes: Sequence[TiltedForest],
    rng: NoiseSource,
    progress: Callable[[float], None] = lambda done: None,
) -> FitTrial:
    """Fit a mixture to each half, from the shape fitted to it, and find the step nearest to the other halves.

    It stops once 30% more steps, and 25, have brought no improvement.
    """
    fits = [_Fit(tables, half, shape, rng) for half, shape in zip(halves, shapes, strict=True)]
    best = math.inf
    steps = 0
    step = 0
    while step < _MAX_STEPS and step <= 1.3 * steps + 25:
        fitted_tables = [fit.step() for fit in fits]
        error = sum(
            tables.distance(fit.half, fitted.ones, fitted.pairs)
            for fit, fitted in zip(fits, fitted_tables, strict=True)
        )
        if error < best:
            best = error
            steps = step
        step += 1
        progress(step / _MAX_STEPS)
    return FitTrial(steps, best)


def trial_step(sizes: tuple[int, ...], rng: NoiseSource) -> Callable[[], object]:
    """Return a function that takes a step of a descent for attributes of these sizes, on tables of independence."""
    ones = np.concatenate([np.full(size, 1.0 / size) for size in sizes])
    pairs = np.outer(ones, ones)
    tables = MeasuredTables(sizes, ones, np.ones_like(ones), pairs, np.ones_like(pairs))
    return _Fit(tables, (ones, pairs), product_mixture(tables, ones), rng).step


def fit_mixture(
    tables: MeasuredTables,
    shape: TiltedForest,
    steps: int,
    rng: NoiseSource,
    progress: Callable[[float], None] = lambda done: None,
) -> tuple[NDArray[np.float64], list[NDArray[np.float64]]]:
    """Return the weights of the components and each attribute's tilts, of four fits of ``steps`` steps together.

    Where noise hides a rare category, its tilts are shrunk towards the average of all components. Without edges, a tilt
    times the shape's one-way table is the component's own table.
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
    return weights, [_shrink_tilts(weights, margins[block], visible[block], tilts[:, block]) for block in tables.blocks]


def _shrink_tilts(
    weights: NDArray[np.float64], margins: NDArray[np.float64], visible: NDArray[np.float64], tilts: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return an attribute's tilts as factors of mean 1 over its one-way table, shrunk where noise hides a category."""

    def factors(logs: NDArray[np.float64]) -> NDArray[np.float64]:
        exponentials = np.exp(logs - logs.max(axis=1, keepdims=True))
        return np.asarray(exponentials / (exponentials @ margins)[:, None])

    first = factors(tilts)
    middle = np.log(weights @ first)
    shrunk = factors(middle + visible * (np.log(np.maximum(first, 1e-30)) - middle))
    return np.asarray((1 - _MIXED_IN) * shrunk + _MIXED_IN * (weights @ shrunk))
