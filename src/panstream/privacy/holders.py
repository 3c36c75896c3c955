"""What a data holder loses by answering: replace-one adjacency on its own records, their number public.

Replacing one record moves one unit between two cells of every table: L1 distance 2, squared L2 distance 2.

Two currencies. A holder whose budget has delta = 0 adds up pure epsilon. One with delta > 0 adds up rho of zero-concentrated
privacy, whatever the questions are and however they depend on earlier answers (a filter: Whitehouse, Ramdas, Rogers,
Wu 2023, Theorem 1), and turns the total into epsilon at its delta once.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass

from panstream.errors import InvalidParameter
from panstream.privacy.composition import zcdp_delta, zcdp_epsilon

__all__ = [
    "Loss",
    "choice_loss",
    "gaussian_sigma",
    "information_sensitivity",
    "laplace_kappa",
    "pure_loss",
    "total_epsilon",
    "zcdp_budget",
    "zcdp_loss",
]

REPLACED_CELLS = 2  # by how many units replacing one record changes a table, in L1 and in squared L2


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Pure epsilon (infinite where only rho is finite) and rho."""

    epsilon: float = 0.0
    rho: float = 0.0

    def __add__(self, other: Loss) -> Loss:
        return Loss(epsilon=self.epsilon + other.epsilon, rho=self.rho + other.rho)


def pure_loss(epsilons: Iterable[float]) -> Loss:
    """Return the loss of mechanisms of these pure epsilons; each is epsilon²/2-zCDP (Bun, Steinke 2016, Prop. 1.4)."""
    values = list(epsilons)
    return Loss(epsilon=math.fsum(values), rho=math.fsum(each**2 / 2.0 for each in values))


def choice_loss(epsilon: float) -> Loss:
    """Return the loss of one exponential mechanism: epsilon²/8-zCDP, since its range is bounded (Cesar, Rogers 2021)."""
    return Loss(epsilon=epsilon, rho=epsilon**2 / 8.0)


def zcdp_loss(rhos: Iterable[float]) -> Loss:
    """Return the loss of Gaussian tables: no pure epsilon covers it."""
    return Loss(epsilon=math.inf, rho=math.fsum(rhos))


def laplace_kappa(epsilon: float) -> float:
    """Return the decay rate of discrete Laplace noise at which one table costs ``epsilon`` (002, Theorem 3.4)."""
    return epsilon / REPLACED_CELLS


def gaussian_sigma(rho: float) -> float:
    """Return the scale of discrete Gaussian noise at which one table costs ``rho``: squared L2 distance 2 / (2·sigma²)."""
    return math.sqrt(REPLACED_CELLS / (2.0 * rho))


def information_sensitivity(records: int, *, binary: bool) -> float:
    """Return by how much replacing one of ``records`` can change a mutual information, in bits (002, Lemma 3.1).

    ``binary`` says that the child, or the parents together, take two values. Exact there and for odd numbers of records,
    an upper bound otherwise. The number of records is the holder's own, never that of all holders together.
    """
    n = records
    if n < 2:
        return 0.0
    if binary:
        return (math.log2(n) + (n - 1) * math.log2(n / (n - 1))) / n
    return (2.0 * math.log2((n + 1) / 2) + (n - 1) * math.log2((n + 1) / (n - 1))) / n


def total_epsilon(loss: Loss, delta: float) -> float:
    """Return the epsilon that a holder reports: the pure total at delta = 0, the converted rho otherwise."""
    return loss.epsilon if delta == 0.0 else zcdp_epsilon(loss.rho, delta)


@functools.lru_cache(maxsize=256)
def zcdp_budget(epsilon: float, delta: float) -> float:
    """Return the largest rho that is (epsilon, delta)-private, rounded down."""
    if not (epsilon > 0 and 0 < delta < 1):
        raise InvalidParameter(f"epsilon must be positive and delta in (0, 1), got {epsilon} and {delta}")
    if math.isinf(epsilon):
        return math.inf
    low, high = 0.0, epsilon  # rho-zCDP is never better than (rho, delta)
    for _ in range(100):
        middle = (low + high) / 2.0
        low, high = (middle, high) if zcdp_delta(middle, epsilon) <= delta else (low, middle)
    return low
