"""What a run gives back."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from panstream.federated.analyst import Federation
from panstream.networks.network import BayesianNetwork
from panstream.privacy.claim import Claim, Intrusions
from panstream.privacy.composition import per_holder

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
    own = Claim(
        epsilon=epsilon,
        delta=delta,
        unit="record",
        adjacency="replace",
        intrusions=Intrusions(unannounced=0),
        releases=federation.questions,
        public=("the number of records of every holder",),
    )
    open_to_all = own.without_privacy("the noise of a holder came from a test source")
    claim = replace(per_holder([own if each.secure else open_to_all for each in present]), releases=own.releases)
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
