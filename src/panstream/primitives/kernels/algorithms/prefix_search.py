"""One level of the search for names: the children of all retained prefixes, scored by their released cells.

Compiled because it visits 2**bits children of thousands of prefixes per level. Works on released tables only.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.kernels.algorithms.prefix_tables import extend_hash
from panstream.primitives.kernels.jit import njit

_B = np.uint64(0xBF58476D1CE4E5B9)
_ONE = np.uint64(1)
_TABLE = 9.0  # tabulated range of cells, and below of noise, in noise scales; beyond, a density counts as 0
_FAR = 20.0
_FINE = 64.0  # table entries per scale
_ALL = 0.6  # prior: a child has all of its parent's events, a part of them, or the number before the last drop
_PART = 0.4
_BACK = 0.05


@njit(cache=True, nogil=True, inline="always")
def _noise_cdf(x: float, scale: float, laplace: bool) -> float:
    """Return P(noise < x) for one Gaussian draw or the sum of two Laplace draws."""
    if laplace:
        t = abs(x) * 2.0 / scale
        tail = 0.25 * (2.0 + t) * math.exp(-t)
        return 1.0 - tail if x > 0 else tail
    return 0.5 * math.erfc(-x / scale * 0.7071067811865476)


@njit(cache=True, nogil=True, inline="always")
def _noise_pdf(x: float, scale: float, laplace: bool) -> float:
    if laplace:
        t = abs(x) * 2.0 / scale
        return 0.5 * (1.0 + t) * math.exp(-t) / scale
    z = x / scale
    return 0.3989422804014327 / scale * math.exp(-0.5 * z * z) if abs(z) < 38.0 else 0.0


@njit(cache=True, nogil=True)
def _tables(laplace: bool) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Tabulate density and distribution of noise of scale 1, from -FAR to FAR: faster to read than exp and erfc."""
    size = int(2 * _FAR * _FINE) + 2
    densities = np.empty(size)
    belows = np.empty(size)
    for index in range(size):
        z = index / _FINE - _FAR
        densities[index] = _noise_pdf(z, 1.0, laplace)
        belows[index] = _noise_cdf(z, 1.0, laplace)
    return densities, belows


@njit(cache=True, nogil=True, inline="always")
def _read(table: NDArray[np.float64], z: float) -> float:
    """Return a table's value at ``z`` by linear interpolation; the last entry beyond its end."""
    position = min((z + _FAR) * _FINE, float(table.size - 2))
    index = int(position)
    return float(table[index] + (position - index) * (table[index + 1] - table[index]))


@njit(cache=True, nogil=True)
def expand_level(
    table: NDArray[np.int32],
    power: int,
    bits: int,
    direct: bool,
    scale: float,
    shared: float,
    top: float,
    min_events: float,
    laplace: bool,
    lowest: float,
    hashes: NDArray[np.uint64],
    codes: NDArray[np.uint64],
    nodes: NDArray[np.float64],
    contexts: NDArray[np.int64],
    prior: NDArray[np.float64],
    unlikely: NDArray[np.float64],
    out_hashes: NDArray[np.uint64],
    out_codes: NDArray[np.uint64],
    out_nodes: NDArray[np.float64],
    out_parents: NDArray[np.int64],
    out_symbols: NDArray[np.uint8],
) -> int:
    """Write the children whose score is at least ``lowest``; return how many.

    A node has four numbers: its score, the mean and variance of its number of events, and the number before the last
    drop. The score is a sum of log-likelihood ratios and log priors, capped at 0 (Fano's metric, reflected). Present
    means: all of the parent's events, a part (log-uniform from ``min_events``), or the number before the drop; absent:
    noise. In either case a cell may be ``shared`` with a heavy item and then carries no information. ``unlikely`` is
    exp(-prior): most children are rejected without a logarithm.
    """
    count = 0
    shift = np.uint64(64 - power)
    spread = 2.0 * math.log(max(top, 6.0 * scale) / (3.0 * scale))
    noise = scale * scale
    clear = 1.0 - shared
    cutoff = math.exp(-lowest)
    densities, belows = _tables(laplace)
    reach = int(_TABLE * scale) + 1
    erasures = np.empty(2 * reach + 1)
    absents = np.empty(2 * reach + 1)
    parts = np.empty(2 * reach + 1)
    for index in range(2 * reach + 1):
        e = float(index - reach)
        erasures[index] = shared / (max(abs(e), 3.0 * scale) * spread)
        absents[index] = clear * _noise_pdf(e, scale, laplace) + erasures[index]
        parts[index] = _noise_cdf(e - min_events, scale, laplace)
    for i in range(hashes.size):
        mass = nodes[1, i]
        variance = nodes[2, i]
        earlier_mass = nodes[3, i]
        context = contexts[i]
        sd = math.sqrt(variance + noise)
        max_mass = mass + 2.0 * math.sqrt(variance)
        width = math.log(max(max_mass / min_events, 1.5))
        floor = math.exp(lowest - nodes[0, i])
        for symbol in range(1 << bits):
            if unlikely[context, symbol] > cutoff:
                continue
            mixed = extend_hash(hashes[i], np.uint64(symbol))
            code = (codes[i] << np.uint64(bits)) | np.uint64(symbol)
            if direct:
                cell = np.int64(table[code])
            else:
                word = mixed * _B
                cell = np.int64(table[word >> shift])
                if not (word >> np.uint64(7)) & _ONE:
                    cell = -cell
            e = float(cell)
            if abs(cell) <= reach:
                erased = erasures[cell + reach]
                absent = absents[cell + reach]
                part = parts[cell + reach]
            else:
                erased = shared / (max(abs(e), 3.0 * scale) * spread)
                absent = clear * _noise_pdf(e, scale, laplace) + erased
                part = _noise_cdf(e - min_events, scale, laplace)
            if e > max_mass - _FAR * scale:
                part = max(part - _read(belows, (e - max_mass) / scale), 0.0)
            same = _ALL * _read(densities, (e - mass) / sd) / sd if abs(e - mass) < _FAR * sd else 0.0
            back = _BACK * _read(densities, (e - earlier_mass) / sd) / sd if abs(e - earlier_mass) < _FAR * sd else 0.0
            part *= _PART / (max(e, min_events) * width)
            present = clear * (same + part + back)
            if present + erased < absent * floor * unlikely[context, symbol] or count >= out_hashes.size:
                continue
            ratio = (present + erased) / absent
            letter = prior[context, symbol]
            score = min(nodes[0, i] + math.log(ratio) + letter, 0.0)
            out_hashes[count] = mixed
            out_codes[count] = code
            out_parents[count] = i
            out_symbols[count] = symbol
            out_nodes[0, count] = score
            out_nodes[1, count] = mass
            out_nodes[2, count] = variance
            out_nodes[3, count] = earlier_mass
            if present > erased:
                if back > same and back > part:
                    out_nodes[1, count] = earlier_mass
                    out_nodes[2, count] = noise
                elif same > part:
                    gain = variance / (variance + noise)
                    out_nodes[1, count] = mass + gain * (e - mass)
                    out_nodes[2, count] = variance * (1.0 - gain) + 0.02 * noise
                else:
                    out_nodes[1, count] = max(e, min_events)
                    out_nodes[2, count] = noise
                    if variance < 0.9 * noise:  # a mass that a second cell has confirmed: worth returning to
                        out_nodes[3, count] = mass
            count += 1
    return count
