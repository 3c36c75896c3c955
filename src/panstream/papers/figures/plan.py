"""The data of a figure: panels, the points to compute, and rows of numbers; no plotting and no files."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from panstream.primitives import validation as checks

EPSILON = "privacy budget ε (of which 2ε is claimed)"
SAME_LOSS = "panstream, at OptBern's true loss"
CLAIMED = "panstream, at the claimed loss 2ε"
_PAPERS = {"000": "paper", "002": "thesis"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureOptions:
    """Options of the computation; the defaults are the papers'. ``diabetes`` is a folder with the prepared table."""

    seed: int = 1
    quick: bool = False
    universe: int = 100_000
    length: int = 100_000
    repetitions: int | None = None
    diabetes: str = ""

    def __post_init__(self) -> None:
        checks.require_at_least(100, universe=self.universe)
        checks.require_at_least(1, length=self.length)
        if self.repetitions is not None:
            checks.require_at_least(2, repetitions=self.repetitions)

    def runs(self, papers: int, *, at_least: int = 40) -> int:
        """Return the number of repetitions of an experiment that the paper repeats ``papers`` times."""
        if self.repetitions is not None:
            return self.repetitions
        return max(at_least, papers // 10) if self.quick else papers

    def users(self, share: float) -> int:
        """Return the sample size for a share of the universe."""
        return max(1, round(share * self.universe))

    def epsilons(self) -> tuple[float, ...]:
        """Return the privacy budgets at which an experiment is run."""
        full = tuple(round(0.05 * step, 2) for step in range(1, 11))
        return tuple(full[i] for i in (0, 1, 3, 6, 9)) if self.quick else full

    def generator(self, *names: object) -> np.random.Generator:
        """Return a generator seeded by the seed and ``names`` only, independent of earlier computations."""
        digest = hashlib.sha256(repr((self.seed, *names)).encode()).digest()
        return np.random.default_rng(np.frombuffer(digest, np.uint64))


@dataclass(frozen=True, slots=True, kw_only=True)
class FigurePanel:
    """One pair of axes: its labels, its title and which axes are logarithmic."""

    key: str = "a"
    title: str = ""
    x_label: str
    y_label: str
    x_log: bool = False
    y_log: bool = False


@dataclass(frozen=True, slots=True)
class FigurePoint:
    """One unit of work: all series of a panel at one value of its x axis."""

    panel: str
    x: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureRow:
    """One number of a figure, with a 95% interval if it was measured."""

    panel: str = "a"
    series: str
    x: float
    y: float
    low: float = math.nan
    high: float = math.nan
    repetitions: int = 0

    @classmethod
    def mean(cls, panel: str, series: str, x: float, samples: NDArray[np.float64]) -> FigureRow:
        """Return the mean of ``samples`` with the interval of the normal approximation."""
        half = 1.96 * float(samples.std(ddof=1)) / math.sqrt(samples.size)
        mean = float(samples.mean())
        return cls(panel=panel, series=series, x=x, y=mean, low=mean - half, high=mean + half, repetitions=samples.size)

    @classmethod
    def share(cls, panel: str, series: str, x: float, hits: NDArray[np.bool_]) -> FigureRow:
        """Return the share of ``hits`` with Wilson's interval."""
        n = hits.size
        part = float(hits.mean())
        z = 1.96
        centre = (part + z * z / (2 * n)) / (1 + z * z / n)
        half = z * math.sqrt(part * (1 - part) / n + (z / (2 * n)) ** 2) / (1 + z * z / n)
        return cls(
            panel=panel, series=series, x=x, y=part, low=max(centre - half, 0.0), high=centre + half, repetitions=n
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FigurePlan:
    """A figure: its panels, its points and the function that computes each."""

    key: str
    title: str
    caption: str
    panels: tuple[FigurePanel, ...]
    points: Callable[[FigureOptions], Sequence[FigurePoint]]
    evaluate: Callable[[FigurePoint, FigureOptions], Sequence[FigureRow]]
    note: Callable[[FigureOptions], str] = lambda options: ""

    @property
    def source(self) -> str:
        """Return the paper and number of the figure, from its key."""
        paper, _, number = self.key.partition("-")
        return "not in the papers" if paper == "new" else f"{_PAPERS[paper]}, Figure {number}"
