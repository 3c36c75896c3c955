"""Released count rows: the count of any name and the distribution of its error.

The error is measured, not modelled: hashes that belong to no name, *decoys*, are looked up in the same rows, and their
values are distributed like the error of a count, including cells shared with other names.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.hashing.keys import key_words

_MEDIAN = {False: 0.6745, True: 0.5815}  # of |noise| with standard deviation 1: Gaussian, or two Laplace draws
_MIN_SCALE = 0.25  # without noise: less than one event
_TAIL_STEPS = 64  # quantiles are measured at tails 2**-(1 + step/4)
_MIN_DECOYS_BEYOND = 20  # decoys beyond a quantile that is measured
_DECOYS = 1 << 17


def noise_scale(cells: NDArray[np.int32], noise_sd: float, laplace: bool) -> float:
    """Return a robust standard deviation of the cells, noise and infrequent names together, at least ``noise_sd``."""
    return max(float(np.median(np.abs(cells))) / _MEDIAN[laplace], noise_sd, _MIN_SCALE)


def padded(names: Sequence[tuple[bytes, bool]], max_item_bytes: int) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return names as offsets and bytes; a truncated one is padded so that hashing truncates it there again."""
    spelled = [name + b"\xf4" + b"\x80" * (max_item_bytes - len(name)) if cut else name for name, cut in names]
    offsets = np.zeros(len(spelled) + 1, np.int64)
    np.cumsum([len(name) for name in spelled], out=offsets[1:])
    return offsets, np.frombuffer(b"".join(spelled) or b"\0", np.uint8)


@dataclass(frozen=True, slots=True, eq=False)
class NameCounts:
    """Counts of some names: unbiased values, standard errors, and the number of rows that agree."""

    values: NDArray[np.float64]
    errors: NDArray[np.float64]
    agreeing: NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class ErrorQuantiles:
    """Quantiles of |error| / standard error, measured on decoys: of tails 2^-1, 2^-1.25, 2^-1.5, ..."""

    quantiles: tuple[float, ...]

    @classmethod
    def of(cls, ratios: NDArray[np.float64]) -> ErrorQuantiles:
        """Return the quantiles of measured ratios; tails that too few of them reach are left to `quantile`."""
        ordered = np.sort(np.abs(ratios))[::-1]
        ranks = [0.5 ** (1 + step / 4) * ordered.size for step in range(_TAIL_STEPS)]
        return cls(tuple(float(ordered[int(rank)]) for rank in ranks if rank >= _MIN_DECOYS_BEYOND))

    def quantile(self, tail: float) -> float:
        """Return the ratio |error| / standard error that is exceeded with probability ``tail``, at least a normal one.

        Beyond the measured tails the quantiles of the last two halvings are continued linearly, like those of an
        exponential distribution.
        """
        step = (-math.log2(tail) - 1.0) * 4
        last = len(self.quantiles) - 1
        normal = _two_sided(tail)
        if last < 0:
            return normal
        if step <= last:
            return max(float(np.interp(step, range(last + 1), self.quantiles)), normal)
        reached = _two_sided(0.5 ** (1 + last / 4))
        back = max(last - 8, 0)
        slope = (self.quantiles[last] - self.quantiles[back]) / max(last - back, 1)
        return max(normal * max(self.quantiles[-1] / reached, 1.0), self.quantiles[-1] + slope * (step - last))


def _two_sided(tail: float) -> float:
    return NormalDist().inv_cdf(1 - min(tail, 1.0) / 2)


@dataclass(frozen=True, slots=True, eq=False)
class CountRows:
    """Released rows, or the same with the counts of known names subtracted."""

    cells: NDArray[np.int32]
    scale: float

    def counts(self, hashes: NDArray[np.uint64], salt: int = 0) -> NameCounts:
        """Return the counts of names by their hashes; with a salt, of decoys."""
        from panstream.primitives.kernels.algorithms.prefix_tables import look_up

        values = np.empty(hashes.size)
        agreeing = np.empty(hashes.size, np.int32)
        look_up(hashes, self.cells, salt, self.scale, values, agreeing)
        return NameCounts(values, self.scale / np.sqrt(np.maximum(agreeing, 1)), agreeing)

    def error_law(self, names: int = 1) -> ErrorQuantiles:
        """Return the measured error quantiles, from enough decoys for the largest error among ``names`` names."""
        wanted = min(max(_DECOYS, 1024 * names), 8 * _DECOYS, 16 * self.cells.size)
        numbers = np.arange(wanted, dtype=np.uint64) * key_words(0, "decoys")[0]
        decoys = self.counts(numbers, salt=1)
        return ErrorQuantiles.of(decoys.values / decoys.errors)
