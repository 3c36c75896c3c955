"""Base classes of the private learners of one table, and their result."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from panstream.errors import InvalidParameter
from panstream.models.networks.budget import Budget, PureBudget, ZcdpBudget
from panstream.models.networks.domain import Domain
from panstream.models.networks.forest_fit import MOSTLY_NOISE
from panstream.models.networks.mixture import Mixture
from panstream.models.networks.network import BayesianNetwork
from panstream.models.networks.noisy_tables import NoisyTable
from panstream.models.networks.records import Records
from panstream.primitives import validation as checks
from panstream.primitives.noise import NoiseSource
from panstream.privacy import Claim

Progress: TypeAlias = Callable[[str, float], None]
"""Called with the current step and the finished fraction of the work, from 0 to 1."""

Learned: TypeAlias = tuple[list[NoisyTable], BayesianNetwork | Mixture]
"""Noisy tables and the model that was fitted to them."""


@dataclass(frozen=True, slots=True, eq=False)
class LearnedNetwork:
    """A network learned with differential privacy; all fields may be published.

    ``records`` is the number of records learned from, public under replace-one; ``tables`` are the noisy counts;
    ``notes`` are limits of the model: that it is mostly noise, or that its attributes are independent.

    Args:
        network: The model.
        claim: What has been lost by publishing it.
        records: Number of records learned from.
        tables: The noisy counts.
        notes: Limits of the model, as sentences.
    """

    network: BayesianNetwork | Mixture
    claim: Claim
    records: int
    tables: tuple[NoisyTable, ...]
    notes: tuple[str, ...] = ()


def _notes(network: BayesianNetwork | Mixture, budget: Budget, records: int, may_have_edges: bool) -> tuple[str, ...]:
    """Return notes on the network's limits, from public figures and the network."""
    sizes = network.domain.sizes
    noise = budget.noise_distance(records, sizes)
    needed = (
        f"about {float(f'{records * noise / budget.min_useful_share:.2g}'):,.0f} records are needed for dependences"
    )
    if noise > MOSTLY_NOISE:
        return (f"mostly noise: {records:,} records are too few for this domain and budget; {needed}",)
    if isinstance(network, Mixture) or network.edges or not may_have_edges or len(sizes) < 2:
        return ()
    if noise > budget.min_useful_share:
        return (f"no edges: the attributes are independent in this model, since noise would hide any edge; {needed}",)
    return ("no edges: the attributes are independent in this model, since no dependence stood out from the noise",)


class _Learner(ABC):
    """Learns a model from records: open a budget, spend it on noisy tables, and state it in the claim."""

    __slots__ = ()

    @abstractmethod
    def _budget(self) -> Budget:
        """Return a new budget."""

    @abstractmethod
    def _learn(self, records: Records, budget: Budget, rng: NoiseSource, progress: Progress) -> Learned:
        """Spend the budget; the result may depend on the records only through what the budget released."""

    def check(self, domain: Domain) -> None:
        """Raise InvalidParameter if the learner does not take this domain; `fit` does so before it draws anything.

        Args:
            domain: The attributes.
        """
        obstacle = self._obstacle(domain)
        if obstacle is not None:
            raise InvalidParameter(obstacle)

    def _obstacle(self, domain: Domain) -> str | None:
        """Return why the learner does not take this domain, or None if it does."""
        return None

    def claim(self) -> Claim:
        """Return the claim of a fit, before any record is read."""
        return self._budget().claim()

    def fit(
        self, records: Records, rng: NoiseSource | None = None, progress: Progress = lambda step, done: None
    ) -> LearnedNetwork:
        """Learn from the records, with noise from the operating system's generator; a test ``rng`` voids the claim."""
        if rng is None:
            with NoiseSource() as fresh:
                return self.fit(records, fresh, progress)
        if len(records) < 1:
            raise InvalidParameter("records must not be empty")
        self.check(records.domain)
        budget = self._budget()
        tables, network = self._learn(records, budget, rng, progress)
        progress("done", 1.0)
        notes = _notes(network, budget, len(records), getattr(self, "degree", None) != 0)
        return LearnedNetwork(network, budget.claim(rng), len(records), tuple(tables), notes)


@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianLearner(_Learner):
    """A learner at (epsilon, delta), through zCDP."""

    epsilon: float
    delta: float = 1e-9

    def __post_init__(self) -> None:
        checks.require_positive(epsilon=self.epsilon)
        checks.require_probability(delta=self.delta)

    def _budget(self) -> ZcdpBudget:
        return ZcdpBudget(self.epsilon, self.delta)


@dataclass(frozen=True, slots=True, kw_only=True)
class PureLearner(_Learner):
    """A learner at pure epsilon."""

    epsilon: float

    def __post_init__(self) -> None:
        checks.require_positive(epsilon=self.epsilon)

    def _budget(self) -> PureBudget:
        return PureBudget(self.epsilon)
