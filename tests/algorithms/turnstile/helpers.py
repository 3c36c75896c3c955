"""What several turnstile tests share: exact means by enumeration, streams with deletes, repeated runs."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from panstream.algorithms.turnstile._linear_estimate import LinearEstimator
from panstream.algorithms.turnstile.modular_counter import ModularCounter
from panstream.primitives.noise import NoiseSource, SeededSource
from panstream.testing.sources import outcomes

SEED = 20_110_613


def exact_counts(counter: ModularCounter, weight: int) -> list[Fraction]:
    """Return the exact mean of every released integer, before noise, for one user with this net weight."""
    means = [Fraction(0)] * counter._outputs
    batch = counter.batch([0], weight=weight)
    for chance, state in outcomes(counter.initial_state):
        with NoiseSource() as rng:
            counter.update(state, batch, rng)
        counts = np.empty(counter._outputs, np.int64)
        counter._count(state.counters, counts)
        means = [mean + chance * int(count) for mean, count in zip(means, counts, strict=True)]
    return means


def exact_plus(counter: ModularCounter) -> tuple[Fraction, Fraction]:
    """Return the exact chances of the plus class at net weight 0 and at any other."""
    assert counter.law.start is not None
    plus = counter.law.start.plus.probability
    return plus, Fraction(1, 2) - plus / (counter.prime - 1)


def assert_sampling_errs(whole: ModularCounter, part: ModularCounter, top: int) -> None:
    """Two of five users drawn without replacement, each at ``top`` or at 0: exact by counting the samples."""
    for full in range(6):
        loads = [top] * full + [0] * (5 - full)
        answers = [5 / 2 * (one + other) for one, other in itertools.combinations(loads, 2)]
        assert part._linear().variance(sum(loads)) == pytest.approx(np.var(answers))  # type: ignore[attr-defined]
        assert whole._linear().variance(sum(loads)) == 0.0  # type: ignore[attr-defined]


def churn(net: NDArray[np.int64], rng: np.random.Generator, size: int = 1_000_000) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return (ids, weights) of a shuffled stream, half of it deletes, whose net weights are ``net``."""
    ids = np.arange(net.size)
    extra = rng.integers(1, size, net.size)
    all_ids = np.concatenate([ids, ids, ids, ids])
    all_weights = np.concatenate([extra, -extra, net + extra // 2, -(extra // 2)])
    order = rng.permutation(all_ids.size)
    return all_ids[order], all_weights[order]


def runs(
    counter: ModularCounter, ids: Any, weights: NDArray[np.int64], repeat: int, seed: int = SEED
) -> tuple[NDArray[np.float64], NDArray[np.float64], list[Any]]:
    """Return unbiased values, standard errors and estimates of repeated runs, each with a fresh start."""
    rng = SeededSource(seed)
    batch = counter.batch(ids, weight=weights)
    estimates = []
    for _ in range(repeat):
        with rng:
            state = counter.initial_state(rng)
            counter.update(state, batch, rng)
            estimates.append(counter.release(state, rng))
    return (
        np.array([e.unbiased for e in estimates]),
        np.array([e.standard_error for e in estimates]),
        estimates,
    )


def assert_unbiased(values: NDArray[np.float64], truth: float) -> None:
    """The mean lies within 4 standard errors of the truth."""
    error = values.std(ddof=1) / np.sqrt(values.size)
    assert abs(values.mean() - truth) < 4 * error, f"mean {values.mean():.6g}, truth {truth:.6g}, error {error:.3g}"


def assert_covers(estimates: list[Any], truth: float, level: float = 0.95) -> None:
    """Intervals cover at least as often as promised, up to five standard deviations of the rate."""
    estimates = estimates[:100]
    covered = sum(low <= truth <= high for low, high in (e.interval(level) for e in estimates))
    slack = 5 * np.sqrt(level * (1 - level) * len(estimates))
    assert covered >= level * len(estimates) - slack, f"{covered} of {len(estimates)} intervals hold the truth"


def assert_linear_law(counter: Any, linear: LinearEstimator, chances: dict[float, float]) -> None:
    """One user: what is said of the error at each answer, for the exact ``chances`` that the released bit is 1 there.

    The release is a bit and noise, and the answer a linear function of it, whose slope is read off two answers.
    """
    start, slope = (counter._decode((ones,)).unbiased for ones in (0, 1))
    slope -= start
    for answer, chance in chances.items():
        assert start + slope * chance == pytest.approx(answer, abs=1e-9)
        assert linear.variance(answer) == pytest.approx(slope**2 * chance * (1 - chance), rel=1e-9)
    assert linear.kappa == pytest.approx(counter.law.noise.kappa / abs(slope))
    assert linear.step == pytest.approx(abs(slope))
    assert linear.support == (min(chances), max(chances))
