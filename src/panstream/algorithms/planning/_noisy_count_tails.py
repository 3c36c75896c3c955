"""Exact tails of a noisy count of randomised bits.

``N = S + L``: ``S`` is the number of ones among ``sampled`` users drawn without replacement from ``universe``, of
whom ``present`` were seen, each holding a Bernoulli(``p1``) bit if seen and a Bernoulli(``p0``) bit if not; ``L`` is
discrete Laplace, P(L = k) proportional to exp(-kappa·|k|).

The distribution of S is computed from its characteristic function on a window around its exponentially tilted mean; L
enters in closed form. Everything left out is bounded. The generating function of a hypergeometric variable has only
real roots (Vatutin and Mikhailov 1982), hence so has that of S, tilted or not: S is a sum of independent bits, for
which

* P(|S - E S| >= t) <= 2·exp(-t²/2 / (Var S + t/3)) (Bernstein) bounds what the windows leave out, and
* |E exp(iθS)| <= exp(-Var S·(1 - cos θ)) bounds the frequencies left out.

Both are cut at about 1e-20 of the tilted mass. What remains is rounding, so a tail keeps about ten relative digits
however small it is, and the work grows like sqrt(sampled).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Complexes = NDArray[np.complex128]

_LOG_DROPPED = 46.0  # exp(-46) is about 1e-20


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UpperTail:
    """The upper tail of N, with relative precision around the threshold that it was tilted for."""

    first: int
    tilted: Floats  # distribution of S - first, tilted
    tilt: float
    log_moment: float  # log E exp(tilt·S)
    kappa: float

    def beyond(self, threshold: int) -> float:
        """Return P(N > threshold)."""
        distance = threshold - self.first - np.arange(self.tilted.size, dtype=np.float64)
        q = math.exp(-self.kappa)
        reached = min(max(threshold - self.first + 1, 0), distance.size)  # S > threshold from here on
        # P(L > k) = q^(k+1)/(1+q) for k >= 0 and 1 - q^(-k)/(1+q) for k < 0, each times exp(tilt·distance).
        total = _dot(self.tilted[:reached], np.exp((self.tilt - self.kappa) * distance[:reached])) * q / (1 + q)
        short = distance[reached:]
        closer = np.exp(self.tilt * short) * (1 - np.exp(self.kappa * short) / (1 + q))
        total += _dot(self.tilted[reached:], closer)
        if total <= 0.0:
            return 0.0
        return math.exp(min(0.0, self.log_moment - self.tilt * threshold + math.log(total)))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _TiltedBits:
    """S under the tilt exp(tilt·S): the coins, the distribution of present users in the sample, and moments."""

    tilt: float
    p0: float
    p1: float
    x0: int
    weights: Floats
    log_moment: float
    mean: float
    variance: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisyCount:
    """The distribution of N. ``p1`` is at least ``p0``."""

    present: int
    sampled: int
    universe: int
    p0: float
    p1: float
    kappa: float

    @property
    def mean(self) -> float:
        """Return E N."""
        return self.sampled * (self.p0 + (self.p1 - self.p0) * self.present / self.universe)

    @property
    def bits_variance(self) -> float:
        """Return Var S."""
        seen = self.present / self.universe
        within = seen * self.p1 * (1 - self.p1) + (1 - seen) * self.p0 * (1 - self.p0)
        return self.sampled * within + (self.p1 - self.p0) ** 2 * self._sample_variance

    @property
    def _sample_variance(self) -> float:
        seen = self.present / self.universe
        unsampled = self.universe - self.sampled
        return self.sampled * seen * (1 - seen) * unsampled / max(1, self.universe - 1)

    def mirrored(self) -> NoisyCount:
        """Return the distribution of ``sampled - N``: absent and present users, and zeros and ones, are exchanged."""
        return NoisyCount(
            present=self.universe - self.present,
            sampled=self.sampled,
            universe=self.universe,
            p0=1.0 - self.p1,
            p1=1.0 - self.p0,
            kappa=self.kappa,
        )

    def upper_tail(self, threshold: float) -> UpperTail:
        """Return the upper tail, tilted so that ``threshold`` is typical (as far as the Laplace tail allows)."""
        bits = self._tilted_towards(threshold)
        half = _half_width(bits.variance)
        first = max(0, math.floor(bits.mean) - half)
        last = min(self.sampled, math.ceil(bits.mean) + half)

        length = 1 << (last - first).bit_length()
        theta = _frequencies(length, bits.variance)
        log_one = _log_bit(bits.p1, theta)
        log_zero = _log_bit(bits.p0, theta)
        always_zero = self.sampled - bits.x0 - (bits.weights.size - 1)  # sampled users who are absent whatever X is
        transform = np.exp(bits.x0 * log_one + always_zero * log_zero - 1j * theta * first)
        transform *= _mixture(bits.weights, log_one, log_zero)
        law = np.fft.irfft(np.conj(transform), length)[: last - first + 1]
        return UpperTail(
            first=first, tilted=np.maximum(law, 0.0), tilt=bits.tilt, log_moment=bits.log_moment, kappa=self.kappa
        )

    def _tilted_towards(self, threshold: float) -> _TiltedBits:
        """Return the tilt in [0, kappa] with a mean within two standard deviations of ``threshold``, or the nearest."""
        low = 0.0
        high = self.kappa
        tilt = min(max(low, (threshold - self.mean) / (self.bits_variance + 1.0)), high)
        while True:
            bits = self._tilted(tilt)
            missing = threshold + 0.5 - bits.mean
            if abs(missing) <= 2 * math.sqrt(bits.variance):
                return bits
            low, high = (tilt, high) if missing > 0 else (low, tilt)
            if high - low <= 1e-3 * high:
                return bits
            newton = tilt + missing / bits.variance if bits.variance > 0 else math.inf
            tilt = newton if low < newton < high else (low + high) / 2

    def _tilted(self, tilt: float) -> _TiltedBits:
        log_a = math.log1p(self.p1 * math.expm1(tilt))
        log_b = math.log1p(self.p0 * math.expm1(tilt))
        p1 = min(1.0, self.p1 * math.exp(tilt - log_a))
        p0 = min(1.0, self.p0 * math.exp(tilt - log_b))
        x0, weights, log_x = self._presence_in_sample(log_a - log_b)
        x = np.arange(weights.size, dtype=np.float64)
        offset = _dot(weights, x)
        spread = _dot(weights, (x - offset) ** 2)
        seen = x0 + offset
        within = seen * p1 * (1 - p1) + (self.sampled - seen) * p0 * (1 - p0)
        return _TiltedBits(
            tilt=tilt,
            p0=p0,
            p1=p1,
            x0=x0,
            weights=weights,
            log_moment=self.sampled * log_b + log_x,
            mean=self.sampled * p0 + (p1 - p0) * seen,
            variance=within + (p1 - p0) ** 2 * spread,
        )

    def _presence_in_sample(self, slope: float) -> tuple[int, Floats, float]:
        """Return the distribution of X, the present users in the sample, tilted by exp(slope·X), with slope >= 0.

        Returns:
            The first value of the window, the tilted probabilities, and log E exp(slope·X).
        """
        lowest = max(0, self.sampled + self.present - self.universe)
        highest = min(self.sampled, self.present)
        if lowest == highest:
            return lowest, np.ones(1), slope * lowest
        mean = self.sampled * self.present / self.universe
        spread = self._sample_variance
        # Tilting a bit by exp(slope) moves its mean by at most pq(e^slope - 1), its variance to at most pq·e^slope.
        growth = math.exp(min(slope, 40.0))
        below = _half_width(spread)
        above = _half_width(spread * growth) + math.ceil(spread * (growth - 1.0))
        first = max(lowest, math.floor(mean) - below)
        last = min(highest, math.ceil(mean) + above)
        x = np.arange(first, last, dtype=np.float64)
        neither = self.universe - self.present - self.sampled
        ratio = np.log((self.present - x) * (self.sampled - x) / ((x + 1) * (neither + x + 1)))
        plain = np.concatenate(([0.0], np.cumsum(ratio)))
        tilted = plain + slope * np.arange(plain.size)
        top_plain = float(plain.max())
        top = float(tilted.max())
        weights = np.exp(tilted - top)
        total = float(weights.sum())
        log_plain = top_plain + math.log(float(np.exp(plain - top_plain).sum()))
        return first, weights / total, slope * first + top + math.log(total) - log_plain


def _dot(a: Floats, b: Floats) -> float:
    """Return sum(a·b), summed pairwise; BLAS would start threads for a few thousand products."""
    return float((a * b).sum())


def _half_width(variance: float) -> int:
    """Return t with 2·exp(-t²/2 / (variance + t/3)) <= exp(-46)."""
    level = _LOG_DROPPED + math.log(2.0)
    return math.ceil(level / 3 + math.sqrt(level**2 / 9 + 2 * level * variance))


def _frequencies(length: int, variance: float) -> Floats:
    """Return the multiples of 2π/length at which exp(-variance·(1 - cos θ)) is above exp(-46)."""
    cut = math.acos(max(-1.0, 1.0 - _LOG_DROPPED / variance)) if variance > 0 else math.pi
    count = min(length // 2, math.ceil(cut * length / (2 * math.pi))) + 1
    return np.arange(count, dtype=np.float64) * (2 * math.pi / length)


def _log_bit(probability: float, theta: Floats) -> Complexes:
    """Return log E exp(iθb) of one bit, accurate for small θ and finite where it vanishes."""
    real = -2.0 * probability * np.sin(theta / 2) ** 2
    imaginary = probability * np.sin(theta)
    size = (1 + real) ** 2 + imaginary**2
    near_one = np.log1p(np.maximum(2 * real + real**2 + imaginary**2, -0.5))
    log_size = np.where(size > 0.5, near_one, np.log(np.maximum(size, 1e-300)))
    return 0.5 * log_size + 1j * np.arctan2(imaginary, 1 + real)


def _mixture(weights: Floats, log_a: Complexes, log_b: Complexes) -> Complexes:
    """Return sum_j weights[j]·a^j·b^(n-j), n = weights.size - 1, never dividing by the smaller of a and b."""
    degree = weights.size - 1
    log_z = log_a - log_b
    falling = log_z.real > 0
    result = np.empty(log_a.size, np.complex128)
    result[falling] = np.exp(degree * log_a[falling]) * _polynomial(weights[::-1], -log_z[falling])
    rising = ~falling
    result[rising] = np.exp(degree * log_b[rising]) * _polynomial(weights, log_z[rising])
    return result


def _polynomial(coefficients: Floats, log_z: Complexes) -> Complexes:
    """Return sum_j coefficients[j]·z^j for every z, in blocks so that few powers are computed."""
    block = math.isqrt(coefficients.size - 1) + 1
    table = np.zeros((-(-coefficients.size // block), block))
    table.reshape(-1)[: coefficients.size] = coefficients
    powers = np.exp(np.arange(block)[:, None] * log_z)
    partial = table @ powers.real + 1j * (table @ powers.imag)
    result: Complexes = (partial * np.exp(block * np.arange(len(table))[:, None] * log_z)).sum(axis=0)
    return result
