"""Exact private choices among weighted candidates, by rejection on uniform random words.

A trial that runs out of words is replayed from the same words once fresh ones are appended, so nothing is biased.
Compiled because the number of trials is random. An exponent of 2**11 or more marks a candidate that is never chosen;
others are at most 2**10.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.kernels.jit import njit
from panstream.primitives.kernels.noise.bernoulli import bernoulli_exp_any, draw_below


# The exponential mechanism by rejection from the uniform distribution.
@njit(cache=True, nogil=True)
def accept_uniform(
    exponents: NDArray[np.uint64], choice: NDArray[np.int64], bits: np.uint64, words: NDArray[np.uint64]
) -> tuple[int, int]:
    """Pick uniformly, accept with exp(-exponent/2**bits), repeat until one is accepted: it goes into ``choice[0]``.

    Return (1, words used), or (0, words used by complete trials) when the words run out.
    """
    never = np.uint64(1) << (bits + np.uint64(11))
    start = 0
    while True:
        pick, pos = draw_below(np.uint64(exponents.size), words, start)
        if pick < 0:
            return 0, start
        if exponents[pick] < never:
            accepted, pos = bernoulli_exp_any(exponents[pick], bits, words, pos)
            if accepted < 0:
                return 0, start
            if accepted == 1:
                choice[0] = pick
                return 1, pos
        start = pos


# ``order`` and ``state`` persist between calls, so that a call with more words continues the same permutation.
@njit(cache=True, nogil=True)
def permute_and_flip(
    exponents: NDArray[np.uint64],
    order: NDArray[np.int64],
    state: NDArray[np.int64],
    bits: np.uint64,
    words: NDArray[np.uint64],
) -> tuple[int, int]:
    """Visit candidates in random order, flip each with exp(-exponent/2**bits); the first head goes into ``state[0]``.

    ``order[: state[1]]`` has been visited. A largest candidate has exponent 0 and always shows a head. Return
    (1, words used), or (0, words used by complete trials) when the words run out.
    """
    never = np.uint64(1) << (bits + np.uint64(11))
    start = 0
    while True:
        visited = state[1]
        offset, pos = draw_below(np.uint64(exponents.size - visited), words, start)
        if offset < 0:
            return 0, start
        pick = order[visited + offset]
        if exponents[pick] < never:
            accepted, pos = bernoulli_exp_any(exponents[pick], bits, words, pos)
            if accepted < 0:
                return 0, start
            if accepted == 1:
                state[0] = pick
                return 1, pos
        order[visited + offset] = order[visited]
        order[visited] = pick
        state[1] = visited + 1
        start = pos
