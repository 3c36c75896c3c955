"""Specimens of the continual room: forty events in the first slot, then a tick."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from panstream.algorithms.continual.decayed_sum import DecayedSum
from panstream.algorithms.continual.gauss_markov import GaussMarkovCount
from panstream.algorithms.continual.least_squares_tree import LeastSquaresTree
from panstream.algorithms.continual.moments import ContinualMean, ContinualVariance
from panstream.algorithms.continual.range_histogram import RangeHistogram
from panstream.algorithms.continual.sums import ContinualCount, ContinualSum, KaryTree
from panstream.algorithms.continual.windowed_sum import WindowedSum
from panstream.papers.counters.binary import BinaryMechanism
from panstream.papers.counters.event_counter import EventCounter
from panstream.papers.counters.hybrid import HybridMechanism
from panstream.papers.counters.logarithmic import LogarithmicMechanism
from panstream.papers.counters.simple_counters import SimpleCounterI, SimpleCounterII
from panstream.testing.conformance import Specimen
from tests.conformance.specimens.common import BAD_VALUES, CANARY

__all__ = ["continual_specimens"]

_ONES: tuple[dict[str, Any], ...] = ({"values": [1] * 30}, {"values": [1] * 10 + [0] * 5}, {"values": []})
_NUMBERS: tuple[dict[str, Any], ...] = ({"values": [2.0] * 300}, {"values": [6.0] * 300})


def continual_specimens() -> list[Specimen]:
    """Return one specimen for every algorithm and option that changes its claim."""
    counters: dict[str, Any] = {
        "KaryTree": KaryTree(epsilon=0.5, horizon=1000),
        "KaryTree, unbounded": KaryTree(epsilon=0.5),
        "ContinualCount": ContinualCount(epsilon=0.5, horizon=1000),
        "ContinualCount, unbounded": ContinualCount(epsilon=0.5),
        "ContinualCount, three contributions": ContinualCount(epsilon=0.5, horizon=1000, contributions=3),
        "ContinualCount, Gaussian": ContinualCount(epsilon=0.5, delta=1e-6, horizon=1000),
        "ContinualCount, Gaussian, unbounded": ContinualCount(epsilon=0.5, delta=1e-6, contributions=3),
        "GaussMarkovCount": GaussMarkovCount(epsilon=0.5, delta=1e-6, horizon=1000),
        "GaussMarkovCount, unbounded": GaussMarkovCount(epsilon=0.5, delta=1e-6, contributions=3),
        "SimpleCounterI": SimpleCounterI(epsilon=0.5, horizon=100),
        "SimpleCounterII": SimpleCounterII(epsilon=0.5, horizon=100),
        "EventCounter": EventCounter(epsilon=0.5, horizon=100),
        "BinaryMechanism": BinaryMechanism(epsilon=0.5, horizon=100),
        "LogarithmicMechanism": LogarithmicMechanism(epsilon=0.5),
        "HybridMechanism": HybridMechanism(epsilon=0.5),
        "WindowedSum": WindowedSum(epsilon=0.5, horizon=100, window=10),
        "WindowedSum, Gaussian": WindowedSum(epsilon=0.5, delta=1e-6, horizon=100, window=10),
        "DecayedSum, exponential": DecayedSum(epsilon=0.5, decay="exponential", rate=0.9),
        "DecayedSum, Gaussian": DecayedSum(epsilon=0.5, delta=1e-6, decay="exponential", rate=0.9),
        "LeastSquaresTree": LeastSquaresTree(epsilon=0.5, horizon=100),
    }
    found = [
        Specimen(
            name=name,
            algorithm=algorithm,
            batches=_ONES,
            bad=BAD_VALUES,
            truth=40.0,
            noiseless=replace(algorithm, epsilon=math.inf),
            canary=CANARY,
        )
        for name, algorithm in counters.items()
    ]
    numbers: dict[str, tuple[Any, float]] = {
        "ContinualSum": (ContinualSum(epsilon=1.0, horizon=100, lower=0.0, upper=8.0), 2400.0),
        "ContinualSum, Gaussian": (ContinualSum(epsilon=1.0, delta=1e-6, horizon=100, lower=0.0, upper=8.0), 2400.0),
        "ContinualVariance, Gaussian": (
            ContinualVariance(epsilon=4.0, delta=1e-6, horizon=1, lower=0.0, upper=8.0),
            4.0 * 600 / 599,
        ),
        "ContinualMean": (ContinualMean(epsilon=4.0, horizon=100, lower=0.0, upper=8.0), 4.0),
        "ContinualMean, replace": (
            ContinualMean(epsilon=4.0, horizon=100, lower=0.0, upper=8.0, adjacency="replace"),
            4.0,
        ),
        "ContinualVariance": (ContinualVariance(epsilon=4.0, horizon=100, lower=0.0, upper=8.0), 4.0 * 600 / 599),
    }
    found += [
        Specimen(
            name=name,
            algorithm=algorithm,
            batches=_NUMBERS,
            bad=BAD_VALUES,
            truth=truth,
            noiseless=replace(algorithm, epsilon=math.inf),
            canary=CANARY,
        )
        for name, (algorithm, truth) in numbers.items()
    ]
    found.append(
        Specimen(
            name="RangeHistogram",
            algorithm=RangeHistogram(epsilon=4.0, horizon=100, lower=0.0, upper=8.0, quantile=0.25),
            batches=_NUMBERS,
            bad=BAD_VALUES,
            truth=2.0,
            canary=CANARY,
        )
    )
    return found
