"""Distributions of the values that some published estimators store instead of a bit; contrast and true loss."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from panstream.primitives import validation as checks

Floats = NDArray[np.float64]
_NODES = 40  # of the quadrature rule between two breaks
_FAR = 1e3  # beyond it the distributions have no mass in double precision


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StoredValues:
    """Two distributions on the same values: atoms (``measure`` all ones) or densities at quadrature nodes."""

    values: Floats
    measure: Floats
    absent: Floats
    present: Floats

    @property
    def gap(self) -> float:
        """Return the distance of the two means."""
        return float((self.measure * (self.present - self.absent)) @ self.values)

    @property
    def contrast(self) -> float:
        """Return the distance of the two means divided by the range."""
        return self.gap / float(np.ptp(self.values))

    @property
    def state_loss(self) -> float:
        """Return the loss of a copy of the stored value, without releases."""
        return float(np.abs(np.log(self.present / self.absent)).max())

    def joint_loss(self, epsilon: float) -> float:
        """Return the joint loss with Laplace(1/(ε·m)) noise on the debiased mean.

        A stored value v moves the debiased mean by v/(m·gap). All histories are compared: drawn as absent or present
        before the copy, then left or redrawn before the output. As a function of the output the ratio of two of them
        is monotone between neighbouring values, so it is largest at a value or far beyond all of them.
        """
        rate = epsilon / self.gap
        offset = self.values - self.values[0]
        near = np.exp(-rate * np.abs(offset[:, None] - offset[None, :]))
        far = np.exp(rate * np.vstack([offset, offset[-1] - offset]) - rate * offset[-1])
        likelihoods = np.vstack([near, far])  # rows: outputs, columns: stored values
        redrawn = np.stack([likelihoods @ (self.measure * law) for law in (self.absent, self.present)])[:, :, None]
        factors = np.concatenate([likelihoods[None], np.broadcast_to(redrawn, (2, *likelihoods.shape))])
        spread = np.log(factors.max(axis=0) / factors.min(axis=0))
        return float((spread + np.abs(np.log(self.present / self.absent))).max())


def _laplace_mass(x: Floats, mean: float) -> Floats:
    """Return P(Laplace(mean, 1) <= x)."""
    tail = 0.5 * np.exp(-np.abs(x - mean))
    return np.where(x < mean, tail, 1.0 - tail)


def _laplace_moment(x: Floats, mean: float) -> Floats:
    """Return E[X; X <= x] of Laplace(mean, 1)."""
    tail = 0.5 * np.exp(-np.abs(x - mean))
    return np.where(x < mean, (x - 1.0) * tail, mean - (x + 1.0) * tail)


@lru_cache(maxsize=64)
def lloyd_max(epsilon: float, levels: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return (boundaries, representation points) of the quantiser of least squared error [Digalakis 2018, §4.4.3].

    For the even mixture of Laplace(-ε/2, 1) and Laplace(ε/2, 1), by Lloyd's iteration; for two levels this is the
    printed pair ±(ε/2 + e^(-ε/2)) with the boundary 0.
    """
    checks.require_at_least(2, levels=levels)
    ranks = (np.arange(1, levels) / levels - 0.5) * 2
    boundaries = -np.sign(ranks) * np.log1p(-np.abs(ranks)) * (1 + epsilon / 2)
    for _ in range(100_000):
        edges = np.concatenate(([-_FAR], boundaries, [_FAR]))
        mass = np.diff(_laplace_mass(edges, -epsilon / 2) + _laplace_mass(edges, epsilon / 2))
        moment = np.diff(_laplace_moment(edges, -epsilon / 2) + _laplace_moment(edges, epsilon / 2))
        points = moment / mass
        moved = (points[1:] + points[:-1]) / 2
        change = float(np.abs(moved - boundaries).max())
        boundaries = moved
        if change <= 1e-13:
            break
    return tuple(map(float, boundaries)), tuple(map(float, points))


def quantised_values(epsilon: float, levels: int) -> StoredValues:
    """Return the distribution of the quantised Laplace value, centred, in units of its scale b."""
    boundaries, points = lloyd_max(epsilon, levels)
    edges = np.concatenate(([-_FAR], boundaries, [_FAR]))
    absent, present = (np.diff(_laplace_mass(edges, mean)) for mean in (-epsilon / 2, epsilon / 2))
    return StoredValues(values=np.array(points), measure=np.ones(levels), absent=absent, present=present)


def truncated_laplace_values(epsilon: float, scale: float = 1.0) -> StoredValues:
    """Return Laplace((1 ∓ εb)/2, b) cut to [0, 1], b = ``scale``, at most 1/ε  [Digalakis 2018, §4.4.4]."""
    scale = min(scale, 1.0 / epsilon)
    means = (0.5 - epsilon * scale / 2, 0.5 + epsilon * scale / 2)
    nodes, measure = _quadrature((0.0, *means, 1.0))
    return _normalised(nodes, measure, *(-np.abs(nodes - mean) / scale for mean in means))


def truncated_gaussian_values(epsilon: float) -> StoredValues:
    """Return Normal(0, 1/(2ε)) and Normal(1, 1/(2ε)) cut to [0, 1]: ratio exp(ε(2x - 1))  [Digalakis 2018, §4.4.4]."""
    nodes, measure = _quadrature((0.0, 0.5, 1.0))
    return _normalised(nodes, measure, -epsilon * nodes**2, -epsilon * (1 - nodes) ** 2)


def _normalised(nodes: Floats, measure: Floats, log_absent: Floats, log_present: Floats) -> StoredValues:
    absent = np.exp(log_absent)
    present = np.exp(log_present)
    return StoredValues(
        values=nodes, measure=measure, absent=absent / (measure @ absent), present=present / (measure @ present)
    )


def _quadrature(breaks: tuple[float, ...]) -> tuple[Floats, Floats]:
    """Return Gauss-Legendre nodes between the breaks, and the two ends with measure 0."""
    x, w = np.polynomial.legendre.leggauss(_NODES)
    pieces = [(low, high) for low, high in pairwise(breaks) if high > low]
    nodes = np.concatenate([[breaks[0]], *(low + (x + 1) * (high - low) / 2 for low, high in pieces), [breaks[-1]]])
    measure = np.concatenate([[0.0], *(w * (high - low) / 2 for low, high in pieces), [0.0]])
    return nodes, measure
