"""Loss of a data holder by its answers: replace-one adjacency on its own records, their number public.

The losses of single tables and choices are in ``privacy.table_loss``; here they are composed.

Two measures. Pure epsilons add up, and so does rho of zero-concentrated privacy, for any questions, also those that
depend on earlier answers (a filter: Whitehouse, Ramdas, Rogers, Wu 2023, Theorem 1). A holder whose budget
has delta = 0 counts pure epsilon only. One with delta > 0 answers as long as one of the two totals, each over all of
its answers, stays within the budget (docs/proofs/federated.md, Lemma 1).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from panstream.privacy.claim import Claim, Intrusions
from panstream.privacy.composition import zcdp_epsilon, zcdp_rho
from panstream.privacy.rounding import sum_rounded_up
from panstream.privacy.table_loss import choice_rho

_ROUNDING = 1e-12


def record_claim(epsilon: float, delta: float, **rest: Any) -> Claim:
    """Return the claim about one record of a holder's table, replaced by any other."""
    covered = Intrusions(unannounced=0)
    return Claim(epsilon=epsilon, delta=delta, unit="record", adjacency="replace", intrusions=covered, **rest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Pure epsilon (infinite where only rho is finite) and rho.

    ``collusion_rho`` is the increase of rho if all other holders of a secure sum collude with the analyst.
    """

    epsilon: float = 0.0
    rho: float = 0.0
    collusion_rho: float = 0.0

    @classmethod
    def pure(cls, epsilons: Iterable[float | Fraction]) -> Loss:
        """Return the loss of mechanisms of these pure epsilons; each is epsilon²/2-zCDP.

        Bun, Steinke 2016, Proposition 1.4.
        """
        values = list(epsilons)
        return cls(epsilon=sum_rounded_up(values), rho=sum_rounded_up(epsilon**2 / 2 for epsilon in values))

    @classmethod
    def of_choice(cls, epsilon: float) -> Loss:
        """Return the loss of one exponential mechanism: epsilon²/8-zCDP by its range (Cesar, Rogers 2021)."""
        return cls(epsilon=epsilon, rho=choice_rho(epsilon))

    @classmethod
    def gaussian(cls, rhos: Iterable[float], parts: int = 1) -> Loss:
        """Return the loss of Gaussian tables: no pure epsilon covers it.

        With ``parts`` the noise is the sum of as many equal draws; only one stays secret if all other holders collude.
        """
        rho = sum_rounded_up(rhos)
        return cls(epsilon=math.inf, rho=rho, collusion_rho=(parts - 1) * rho)

    def __add__(self, other: Loss) -> Loss:
        return Loss(
            epsilon=sum_rounded_up((self.epsilon, other.epsilon)),
            rho=sum_rounded_up((self.rho, other.rho)),
            collusion_rho=sum_rounded_up((self.collusion_rho, other.collusion_rho)),
        )

    @property
    def if_all_collude(self) -> Loss:
        """Return the loss towards an analyst with whom all other holders collude."""
        return Loss(epsilon=self.epsilon, rho=sum_rounded_up((self.rho, self.collusion_rho)))

    def at(self, delta: float) -> float:
        """Return the epsilon that a holder reports: the pure total, or the converted rho where that is smaller."""
        return self.epsilon if delta == 0.0 else min(self.epsilon, zcdp_epsilon(self.rho, delta))

    def is_within(self, epsilon: float, delta: float) -> bool:
        """Return whether one of the two totals is within a budget, up to rounding."""
        if self.epsilon <= epsilon * (1.0 + _ROUNDING):
            return True
        return delta > 0.0 and self.rho <= zcdp_rho(epsilon, delta) * (1.0 + _ROUNDING)
