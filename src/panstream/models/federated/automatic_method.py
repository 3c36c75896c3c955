"""The method of a run that names none: all pairs by secure sums where the holders can form them, else the tree."""

from __future__ import annotations

from dataclasses import dataclass

from panstream.models.federated._answers import HolderInfo
from panstream.models.federated.analyst import FederatedModel, Federation
from panstream.models.federated.federated_pairs import FederatedPairs
from panstream.models.federated.gaussian_methods import FederatedTree
from panstream.models.federated.secure_sums import MIN_MEMBERS


@dataclass(frozen=True, slots=True, kw_only=True)
class AutomaticMethod:
    """`FederatedPairs` by secure sums if three or more holders pin each other's keys, else `FederatedTree`.

    The choice depends on public facts only: how many attributes and holders there are, and whose keys they have pinned.

    Args:
        epsilon: Loss of every record.
        delta: The claimed delta.
        colluders: How many holders of a secure sum may collude with the analyst; by default a third of them.
        dropouts: How many others may fail after a secure sum was closed; by default one of five holders or more.

    **Privacy.** (epsilon, delta) towards every record, replace-one, by either method.
    """

    epsilon: float
    delta: float = 1e-6
    colluders: int | None = None
    dropouts: int | None = None

    def __post_init__(self) -> None:
        self.pairs()  # checks the parameters of both methods

    def run(self, federation: Federation) -> FederatedModel:
        """Choose a method, say which and why, and run it.

        Args:
            federation: The holders.
        """
        obstacle = _obstacle(federation.holders, len(federation.domain))
        if obstacle is None:
            federation.report("method: pairs by secure sums, because the holders have pinned each other's keys")
            return self.pairs().run(federation)
        federation.report(f"method: tree, with every holder's own noise, because {obstacle}")
        return FederatedTree(epsilon=self.epsilon, delta=self.delta).run(federation)

    def pairs(self) -> FederatedPairs:
        """Return the method by secure sums."""
        return FederatedPairs(
            epsilon=self.epsilon, delta=self.delta, secure=True, colluders=self.colluders, dropouts=self.dropouts
        )


def _obstacle(holders: list[HolderInfo], attributes: int) -> str | None:
    """Return why the holders cannot form secure sums of pairs, or None if they can."""
    names = {holder.holder for holder in holders}
    if attributes < 2:
        return "there is only one attribute"
    if len(names) < MIN_MEMBERS:
        return f"secure sums need {MIN_MEMBERS} holders or more"
    without = [holder.holder for holder in holders if not names <= set(holder.pinned)]
    if without:
        return f"{', '.join(without)} has not pinned the keys of all others, which secure sums need"
    return None
