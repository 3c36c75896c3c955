"""Keyed hash functions whose results never change, on any machine or in any release.

::

    keys.py         key: int (public)  -- derive, expand -->  one subkey for every use
                          |
        +-----------------+-----------------+--------------------+
    _strings.py       _integers.py      _permutation.py      _kwise.py
    multiply-fold,    64-bit mixer      of [0, U)            k-wise independent
    SipHash-1-3
    hash_strings      hash_integers     permute              KWise
        |                 |
        +- _bitmap_cells.py     hash -> (level, bucket) -> cell of a bitmap
             cells_of, cells_of_integers, cells_of_strings, mark_strings,
             mark_integers_packed, mark_strings_packed

Every function takes the user's key, derives a subkey from it and writes to the caller's array ``out``, which `Scratch`
can wipe; no other copy of a hash is left. Importing this package compiles nothing: the loops in
``panstream.primitives.kernels`` are loaded at the first call.
"""

from __future__ import annotations

from panstream.primitives.hashing._bitmap_cells import (
    MAX_LEVELS,
    cells_of,
    cells_of_integers,
    cells_of_strings,
    mark_integers_packed,
    mark_strings,
    mark_strings_packed,
)
from panstream.primitives.hashing._integers import hash_integers
from panstream.primitives.hashing._kwise import PRIME, KWise
from panstream.primitives.hashing._permutation import permute
from panstream.primitives.hashing._strings import StringHash, check_hash, hash_strings
from panstream.primitives.hashing.keys import HashKey, check_key, derive, expand

__all__ = [
    "MAX_LEVELS",
    "PRIME",
    "HashKey",
    "KWise",
    "StringHash",
    "cells_of",
    "cells_of_integers",
    "cells_of_strings",
    "check_hash",
    "check_key",
    "derive",
    "expand",
    "hash_integers",
    "hash_strings",
    "mark_integers_packed",
    "mark_strings",
    "mark_strings_packed",
    "permute",
]
