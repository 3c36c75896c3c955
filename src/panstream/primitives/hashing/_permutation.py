"""A keyed permutation of [0, U), for any U up to 2**62.

*Up to 2**16* the permutation is a table, shuffled by Fisher-Yates; the word for position i is ``hash_integers`` of
i with the key ``derive(key, "shuffle")``'s halves in place of the integers' key.

*Above*, an id is a pair (left, right) in [0, A) x [0, 2**k), with 2**k about the square root of U and
A = ceil(U / 2**k). Eight Feistel rounds add a function of one half to the other, alternately modulo A and by xor. An
image not in [0, U) is permuted again until it is (cycle walking); since A * 2**k - U < 2**k, that happens to less than
one id in A.

The function of a round maps the half h through a fixed bijection g of the 32-bit words and takes the upper bits of ``a
* g(h) + b`` modulo 2**64, with fresh a and b from ``expand(key, "permutation", 16)`` for every round. Over a and b that
family is strongly universal (Dietzfelbinger, 1996): its values at two different halves are independent and uniform, up
to the rounding of 2**33 values or more to A. The images of two ids, before any walk, are therefore distributed as with
truly random round functions. Exact calculation on small shapes puts those within a total variation distance of min(A,
2**k)**-3 of the uniform pair of different images (6e-8 at U = 65,537, 7e-11 at 10**7); this is not proved in general
and leaves out the few ids that walk, which the tests cover by counting. Mean and variance of the size of a sample
"perm(u) < m" depend on pairs only.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.primitives import validation as checks
from panstream.primitives.hashing._array_checks import check_limit, check_out, words_of
from panstream.primitives.hashing.keys import HashKey, expand, key_words

MAX_UNIVERSE = 1 << 62
TABLE_UNIVERSE = 1 << 16
DOUBLE_ROUNDS = 4


def permute(ids: NDArray[Any], universe: int, key: HashKey, out: NDArray[Any]) -> None:
    """Write the image of every id, an integer in [0, universe), to ``out``; both int64 or uint64.

    ``out`` may be ``ids`` itself.

    >>> out = np.empty(10, np.int64)
    >>> permute(np.arange(10), 10, 0, out)
    >>> sorted(out.tolist())
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """
    from panstream.primitives.kernels.hashing.feistel import permute_all, take_all

    words, images = _checked(ids, universe, out)
    if universe <= TABLE_UNIVERSE:
        take_all(words, _table(universe, key), images)
    else:
        permute_all(words, np.uint64(universe), *_shape(universe), _round_keys(key), images)


def _shape(universe: int) -> tuple[np.uint64, np.uint64]:
    """Return A and k: ids of a universe above 2**16 are pairs in [0, A) x [0, 2**k)."""
    bits = universe.bit_length() // 2
    return np.uint64(-(-universe >> bits)), np.uint64(bits)


@lru_cache(maxsize=64, typed=True)
def _round_keys(key: HashKey) -> NDArray[np.uint64]:
    """Return one row (a, b, a', b') for every two rounds: a, b for the left half, a', b' for the right."""
    words = np.array(expand(key, "permutation", 4 * DOUBLE_ROUNDS), np.uint64).reshape(DOUBLE_ROUNDS, 4)
    words.flags.writeable = False
    return words


@lru_cache(maxsize=16, typed=True)
def _table(universe: int, key: HashKey) -> NDArray[np.uint16]:
    """Return the permutation of a universe of at most 2**16."""
    from panstream.primitives.kernels.hashing.feistel import shuffle

    table = np.empty(universe, np.uint16)
    shuffle(table, *key_words(key, "shuffle"))
    table.flags.writeable = False
    return table


def _checked(ids: Any, universe: int, out: Any) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    checks.require_int(1, MAX_UNIVERSE, universe=universe)
    words = words_of(ids, "ids")
    check_out(out, words.size, np.int64, np.uint64)
    check_limit(words, universe, "ids")
    return words, out.view(np.uint64)
