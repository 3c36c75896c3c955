"""The base of statistics that choose the algorithm that computes them."""

from __future__ import annotations

from typing import Any

from panstream.core.algorithm import not_started_error
from panstream.core.monitor import Monitor
from panstream.privacy.claim import Claim


class AutoAlgorithm:
    """A statistic that chooses, sizes and explains the ``algorithm`` with the smallest error."""

    __slots__ = ()

    algorithm: Any

    def __getattr__(self, name: str) -> Any:
        raise not_started_error(self, name)

    def start(self) -> Monitor[Any]:
        """Return a running monitor of the chosen algorithm."""
        return Monitor[Any](self.algorithm)

    def claim(self) -> Claim:
        """Return the claim of the chosen algorithm."""
        claim: Claim = self.algorithm.claim()
        return claim
