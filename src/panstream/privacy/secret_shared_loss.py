"""What shares on two machines cost: the answers, and nothing besides.

A look at one machine shows uniform numbers (docs/proofs/two-machines.md). Each answer holds a full draw of each
machine, and whoever watched one of them draw knows that draw; so the loss is that of one draw each.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from panstream.primitives.noise.distributions import DiscreteLaplace
from panstream.privacy.claim import Claim, Intrusions, Unit
from panstream.privacy.rounding import equal_share

__all__ = ["ASSUMPTION", "noisy_claim", "shared_claim", "shared_law"]

ASSUMPTION = "AES-256-CTR, X25519, TLS 1.3; front end and machines run hardened (the default on Linux)"
_STEPS = "when steps are, and how large their messages"


@lru_cache(maxsize=256)
def shared_law(epsilon: float, moved: int) -> DiscreteLaplace:
    """Return the law of each machine's draws, where one unit moves all opened numbers together by ``moved``.

    epsilon = moved·kappa                                                                  [two-machines.md, Theorem]
    """
    return DiscreteLaplace.at_most(equal_share(epsilon, moved))


def shared_claim(epsilon: float, unit: Unit, releases: int, public: str) -> Claim:
    """Return the loss of any number of looks at one machine at a time, and of all releases."""
    return Claim(
        epsilon=epsilon,
        unit=unit,
        intrusions=Intrusions(unannounced=-1, machines=2),
        assumption=ASSUMPTION,
        inputs="adaptive",
        locations=("memory", "disk"),
        releases=releases,
        public=(public, _STEPS),
        note="" if epsilon < float("inf") else "no noise: for tests only",
    )


def noisy_claim(one: Claim) -> Claim:
    """Return the claim of cells that are drawn as on one machine, whose claim is ``one``: both machines in one epoch,
    once, show what its one copy shows.

    epsilon = epsilon_s + ln(1 - p1 + p1·e**(n·kappa))                          [two-machines.md, Noisy cells]
    """
    return replace(
        one,
        intrusions=Intrusions(unannounced=-1, machines=2, together=1),
        assumption=ASSUMPTION,
        locations=("memory", "disk"),
        public=(*one.public, _STEPS),
    )
