"""What a run gives back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from panstream.federated.analyst import Federation
from panstream.networks.network import BayesianNetwork
from panstream.privacy.claim import Claim, Intrusions

__all__ = ["FederatedModel", "finish"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FederatedModel:
    """A network, the claim towards every record of every holder, who took part and who was left out."""

    network: BayesianNetwork
    claim: Claim
    method: str
    run: str
    records: int
    holders: tuple[str, ...]
    dropped: dict[str, str]
    questions: int
    facts: dict[str, Any] = field(default_factory=dict)


def finish(
    federation: Federation, network: BayesianNetwork, method: str, *, epsilon: float, delta: float = 0.0, **facts: Any
) -> FederatedModel:
    """Return the result of a run in which every holder spent at most (epsilon, delta)."""
    present = federation.holders
    claim = Claim(
        epsilon=epsilon,
        delta=delta,
        unit="record",
        adjacency="replace",
        intrusions=Intrusions(unannounced=0),
        releases=federation.questions,
        public=("the number of records of every holder",),
    )
    if not all(each.secure for each in present):
        claim = claim.without_privacy("the noise of a holder came from a test source")
    return FederatedModel(
        network=network,
        claim=claim,
        method=method,
        run=federation.run,
        records=federation.records,
        holders=tuple(each.holder for each in present),
        dropped=dict(federation.dropped),
        questions=federation.questions,
        facts=facts,
    )
