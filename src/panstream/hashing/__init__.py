"""Keyed hash functions whose results never change, on any machine or in any release.

::

    keys.py         key: int (public)  -- derive, expand -->  one subkey for every use
                          |
        +-----------------+-----------------+--------------------+
    _strings.py       _integers.py      _permutation.py      _polynomial.py
    multiply-fold,    64-bit mixer      of [0, U)            k-wise independent
    SipHash-1-3
    hash_strings      hash_integers     permute              KWise
        |                 |
        +--- _cells.py ---+     hash -> (level, bucket) -> cell of a bitmap
             cells_of, cells_of_integers, cells_of_strings, mark_strings,
             mark_integers_packed, mark_strings_packed

Every function takes the user's key, derives its own subkey from it and writes to an array ``out`` of the caller's,
which :class:`panstream.scratch.Scratch` can wipe; no hash stays anywhere else. Importing this package compiles nothing:
the loops in ``panstream._kernels`` are loaded at the first call.
"""

from __future__ import annotations

from panstream.hashing._cells import (
    MAX_LEVELS,
    cells_of,
    cells_of_integers,
    cells_of_strings,
    mark_integers_packed,
    mark_strings,
    mark_strings_packed,
)
from panstream.hashing._integers import hash_integers
from panstream.hashing._permutation import permute
from panstream.hashing._polynomial import PRIME, KWise
from panstream.hashing._strings import StringHash, check_hash, hash_strings
from panstream.hashing.keys import HashKey, check_key, derive, expand

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
