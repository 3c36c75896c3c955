"""Keyed hash functions whose results never change, on any machine or in any release.

::

    keys.py         key: int (public)  -- derive, expand -->  one subkey for every use
                          |
        +-----------------+-----------------+--------------------+
    strings.py        integers.py       permutation.py       polynomial.py
    SipHash-1-3       64-bit mixer      of [0, U)            k-wise independent
    hash_strings      hash_integers     permute              KWise
        |                 |
        +--- cells.py ----+     hash -> (level, bucket) -> cell of a bitmap
             cells_of, cells_of_integers, cells_of_strings

Every function takes the user's key, derives its own subkey from it and writes to an array ``out`` of the caller's,
which :class:`panstream.scratch.Scratch` can wipe; no hash stays anywhere else. Importing this package compiles nothing:
the loops in ``panstream._kernels`` are loaded at the first call.
"""

from __future__ import annotations

from panstream.hashing.cells import MAX_LEVELS, cells_of, cells_of_integers, cells_of_strings
from panstream.hashing.integers import hash_integers
from panstream.hashing.keys import HashKey, check_key, derive, expand
from panstream.hashing.permutation import permute
from panstream.hashing.polynomial import PRIME, KWise
from panstream.hashing.strings import hash_strings

__all__ = [
    "MAX_LEVELS",
    "PRIME",
    "HashKey",
    "KWise",
    "cells_of",
    "cells_of_integers",
    "cells_of_strings",
    "check_key",
    "derive",
    "expand",
    "hash_integers",
    "hash_strings",
    "permute",
]
