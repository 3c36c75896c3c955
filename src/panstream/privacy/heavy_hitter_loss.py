"""The noise of a prefix sketch: one event changes one cell on every level and in every row by one.

Start and release noise protect disjoint sets of events, so each has the whole budget (docs/proofs/names.md, Theorem 1).
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from panstream.errors import InvalidParameter
from panstream.primitives.noise.distributions import DiscreteGaussian, DiscreteLaplace
from panstream.privacy.composition import zcdp_rho, zcdp_tail
from panstream.privacy.continual_loss import gaussian_losses
from panstream.privacy.numeric_search import bisect

ROW_SHARE = 0.25  # of the budget: for the rows, which answer point queries; the levels, for decoding, get the rest
_MIN_DELTA = 1e-12
_REACH = 13.0  # standard deviations to which a sum of noise is tabulated; the tail has less than 1e-37
_ROUNDING = 1.0 + 1e-9  # bounds the relative error of sums of up to 10^9 positive floats
_ABSOLUTE = 1e-17  # bounds the error of differences of sums of at most 1
_SMOOTH = 2.2

Law = DiscreteLaplace | DiscreteGaussian


@lru_cache(maxsize=256)
def names_laws(epsilon: float, delta: float, levels: int, rows: int, contributions: int = 1) -> tuple[Law, Law]:
    """Return the noise of a cell of a level and of a row.

    With delta = 0, the kappas of the cells that an event touches sum to epsilon. Else discrete Gaussians with the
    smallest scale for which `names_delta` is at most delta; for K contributions, whose cells may coincide in any way,
    the scale at which they lose the zCDP that (epsilon, delta) allows.
    """
    if math.isinf(epsilon):
        return DiscreteLaplace(None), DiscreteLaplace(None)
    if delta == 0.0:
        share = epsilon / contributions
        level = share * (1 - ROW_SHARE) / levels
        row = share * ROW_SHARE / rows
        return DiscreteLaplace.at_most(level), DiscreteLaplace.at_most(row)
    if not _MIN_DELTA <= delta < 1:
        raise InvalidParameter(f"delta must be 0 or in [{_MIN_DELTA:g}, 1), got delta={delta}")
    if contributions > 1:
        return _gaussians(contributions / math.sqrt(2 * zcdp_rho(epsilon, delta)), levels, rows)
    scale = _scale(epsilon, delta)
    scale *= 1.0 + 1e-7
    while names_delta(epsilon, *(laws := _gaussians(scale, levels, rows)), levels, rows) > delta:
        scale *= 1.0 + 1e-6
    return laws


def _gaussians(scale: float, levels: int, rows: int) -> tuple[DiscreteGaussian, DiscreteGaussian]:
    """Return distributions with levels/sigma_level² + rows/sigma_row² at most 1/scale²."""
    level = DiscreteGaussian.at_least(scale * math.sqrt(levels / (1 - ROW_SHARE)))
    return level, DiscreteGaussian.at_least(scale * math.sqrt(rows / ROW_SHARE))


def names_losses(level: Law, row: Law, levels: int, rows: int, contributions: int = 1) -> tuple[float, float]:
    """Return what a copy with all answers loses, as zCDP, and what the answers alone lose, with Gaussian noise.

    For adaptive inputs and an adaptively chosen copy; the cells of all contributions may coincide (names.md,
    Theorem 2).
    """
    assert isinstance(level, DiscreteGaussian)
    assert isinstance(row, DiscreteGaussian)
    moves = [(level, levels * contributions**2), (row, rows * contributions**2)]
    return gaussian_losses(moves, (levels + rows) * contributions)


def _scale(epsilon: float, delta: float) -> float:
    """Return the sigma of one normal draw of sensitivity 1 with (epsilon, delta): Balle, Wang (2018), Theorem 8."""
    normal = NormalDist().cdf

    def loses_more(sigma: float) -> bool:
        return normal(0.5 / sigma - epsilon * sigma) - _grown(epsilon, -0.5 / sigma - epsilon * sigma) > delta

    return bisect(loses_more, 1e-3, 1e6)[1]


def _grown(epsilon: float, z: float) -> float:
    """Return exp(epsilon)·P(Normal < z) without overflow."""
    tail = 0.5 * math.erfc(-z / math.sqrt(2))
    return math.exp(epsilon + math.log(tail)) if tail > 0 else 0.0


def names_delta(epsilon: float, level: Law, row: Law, levels: int, rows: int) -> float:
    """Return the delta of one event at ``epsilon``, exactly, and rounded up.

    The loss is linear in two sums: sum(k)/sigma² + n/(2·sigma²) over the touched cells of levels, and of rows. Their
    distributions are convolved on the integers, without a normal approximation. An event that touches fewer cells loses
    no more.
    """
    inner, k, b = _noise_sum(row, rows)
    outer, j, a = _noise_sum(level, levels)
    over = 0.5 * (levels * a + rows * b) - epsilon + a * j  # loss minus epsilon, without the rows' term b·k
    first = np.searchsorted(b * k, -over, side="right")  # the first k for which the total is positive
    above = np.append(np.cumsum(inner[::-1])[::-1], 0.0)[first]
    scaled = np.append(np.cumsum((inner * np.exp(-b * (k - k[0])))[::-1])[::-1], 0.0)[first]
    with np.errstate(divide="ignore"):  # exp(-over - b·k[0]) may overflow where its factor is 0
        less = np.exp(np.minimum(np.log(scaled) - over - b * k[0], 0.0))
    return float(outer @ np.maximum(above - less, 0.0)) * _ROUNDING + _ABSOLUTE


@lru_cache(maxsize=256)
def names_tail(loss: float, level: Law, row: Law, levels: int, rows: int, contributions: int = 1) -> float:
    """Return a bound on the probability that the log-odds change by more than ``loss``, up or down.

    For one event exactly, and rounded up; the same for both neighbours, since the noise is symmetric. For several
    contributions, which may come in any order around the copy and depend on answers, the bound that zCDP gives.
    """
    if contributions > 1:
        return zcdp_tail(names_losses(level, row, levels, rows, contributions)[0], loss)
    inner, k, b = _noise_sum(row, rows)
    outer, j, a = _noise_sum(level, levels)
    mean = 0.5 * (levels * a + rows * b)
    upwards = np.append(np.cumsum(inner[::-1])[::-1], 0.0)
    downwards = np.insert(np.cumsum(inner), 0, 0.0)
    above = upwards[np.searchsorted(b * k, loss - mean - a * j, side="left")]
    below = downwards[np.searchsorted(b * k, -loss - mean - a * j, side="right")]
    return min(float(outer @ (above + below)) * _ROUNDING + _ABSOLUTE, 1.0)


def _noise_sum(law: Law, count: int) -> tuple[NDArray[np.float64], NDArray[np.int64], float]:
    """Return probabilities and values of a sum of ``count`` draws, and the loss per unit of it."""
    assert isinstance(law, DiscreteGaussian)
    probabilities = _sum_probabilities(law.sigma**2, count)
    return probabilities, np.arange(probabilities.size) - probabilities.size // 2, 1.0 / law.sigma**2


@lru_cache(maxsize=64)
def _sum_probabilities(square: float, count: int) -> NDArray[np.float64]:
    """Return the distribution of a sum of discrete Gaussians, as an array around 0.

    Two with variances A and B sum to the discrete Gaussian with A + B, up to a factor within
    1 ± 3·exp(-2π²·AB/(A+B)) (Poisson's summation): for sigma above 2.2 all factors together are within 1 ± 1e-17.
    Smaller ones are convolved.
    """
    if square >= _SMOOTH**2:
        return _gaussian(square * count)
    law = power = _gaussian(square)
    for _ in range(count - 1):
        law = np.convolve(law, power)
    return law


def _gaussian(square: float) -> NDArray[np.float64]:
    reach = math.ceil(_REACH * math.sqrt(square)) + 2
    law: NDArray[np.float64] = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2.0 * square))
    law /= law.sum()
    return law
