"""What a private learner gives back: the network, what it cost, and the noisy tables behind it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from panstream.networks.forest import NoisyTable
from panstream.networks.network import BayesianNetwork
from panstream.privacy import Claim, Intrusions
from panstream.randomness import Source

__all__ = ["LearnedNetwork", "Progress", "record_claim", "silent"]

Progress: TypeAlias = Callable[[str, float], None]
"""Called with what is being done and how much of the whole is finished, from 0 to 1."""


@dataclass(frozen=True, slots=True, eq=False)
class LearnedNetwork:
    """A network learned with differential privacy: everything in here may be published.

    ``records`` is the number of records learned from, public under replace-one; ``tables`` are the noisy counts.
    """

    network: BayesianNetwork
    claim: Claim
    records: int
    tables: tuple[NoisyTable, ...]


def record_claim(epsilon: float, delta: float, parts: dict[str, float], source: Source | None = None) -> Claim:
    """Return the claim of a network learned from one table: one record replaced by any other."""
    claim = Claim(
        epsilon=epsilon,
        delta=delta,
        unit="record",
        adjacency="replace",
        parts=parts,
        intrusions=Intrusions(unannounced=0),
        releases=1,
        public=("the number of records", "the declared domain"),
        note="not pan-private: whoever holds the records keeps them",
    )
    if source is not None and not source.is_secure:
        return claim.without_privacy("drawn from a test source")
    return claim


def silent(what: str, done: float) -> None:
    """Report nothing."""
