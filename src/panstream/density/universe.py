"""A known population: a size (ids 0..U-1) or a public list of ids, and the sample that is watched."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.batch import integers
from panstream.errors import InvalidParameter
from panstream.hashing import permute

__all__ = ["Universe", "universe_of"]


@dataclass(frozen=True, slots=True)
class Universe:
    """The users that may appear. ``sample`` of them, chosen by a public keyed permutation, have a bit."""

    members: int | tuple[Any, ...]
    sample: int | None
    key: int

    @staticmethod
    def check(members: Any) -> None:
        """Raise InvalidParameter unless ``members`` is a size or a list of different ids."""
        if isinstance(members, bool) or not isinstance(members, int | tuple | list):
            raise InvalidParameter("universe must be a number of users or a list of ids")
        if isinstance(members, int) and not 1 <= members <= 1 << 62:
            raise InvalidParameter(f"universe must be in 1..2**62, got universe={members}")

    @property
    def size(self) -> int:
        """Return U, the number of users that may appear."""
        return self.members if isinstance(self.members, int) else len(self.members)

    @property
    def sampled(self) -> int:
        """Return m, the number of users that have a bit."""
        return self.size if self.sample is None else self.sample

    @property
    def permuted(self) -> bool:
        """Return whether the permutation is needed: with everyone in the sample it is not."""
        return self.sampled < self.size

    def cells_of(self, ids: Any) -> tuple[NDArray[np.int64], tuple[NDArray[Any], ...]]:
        """Return each id's number in [0, U) and the copies that must be wiped, or raise InvalidBatch by row."""
        numbers, copied = integers(ids, name="ids", lower=0, upper=self.size - 1)
        return numbers, (numbers,) if copied else ()

    def permute(self, numbers: NDArray[np.int64], out: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the permuted numbers; a user is in the sample if hers is below ``sampled``."""
        permute(numbers, self.size, self.key, out)
        return out


@lru_cache(maxsize=64)
def universe_of(members: int | tuple[Any, ...], sample: int | None, key: int) -> Universe:
    """Return the universe, built once for each choice of parameters."""
    return Universe(members, sample, key)
