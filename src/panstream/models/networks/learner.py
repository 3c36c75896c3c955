"""What learners of one table have in common: how they are called, what they promise, and what comes out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from panstream.errors import InvalidParameter
from panstream.models.networks.budget import Budget, PureBudget, ZcdpBudget
from panstream.models.networks.forest_fit import MOSTLY_NOISE
from panstream.models.networks.mixture import Mixture
from panstream.models.networks.network import BayesianNetwork
from panstream.models.networks.noisy_tables import NoisyTable
from panstream.models.networks.records import Records
from panstream.primitives import validation as checks
from panstream.primitives.noise import NoiseSource
from panstream.privacy import Claim

Progress: TypeAlias = Callable[[str, float], None]
"""Called with what is being done and how much of the whole is finished, from 0 to 1."""

Learned: TypeAlias = tuple[list[NoisyTable], BayesianNetwork | Mixture]
"""Noisy tables and the model that was fitted to them."""


@dataclass(frozen=True, slots=True, eq=False)
class LearnedNetwork:
    """A network learned with differential privacy: everything in here may be published.

    ``records`` is the number of records learned from, public under replace-one; ``tables`` are the noisy counts;
    ``notes`` say what the model cannot show: that it is mostly noise, or that its attributes are independent.
    """

    network: BayesianNetwork | Mixture
    claim: Claim
    records: int
    tables: tuple[NoisyTable, ...]
    notes: tuple[str, ...] = ()


def _notes(network: BayesianNetwork | Mixture, budget: Budget, records: int, wanted: bool) -> tuple[str, ...]:
    """Return what a reader should know, by public figures and the network; ``wanted``: edges were asked for."""
    sizes = network.domain.sizes
    blur = budget.blurring(records, sizes)
    needed = f"about {float(f'{records * blur / budget.min_useful_share:.2g}'):,.0f} records are needed for dependences"
    if blur > MOSTLY_NOISE:
        return (f"mostly noise: {records:,} records are too few for this domain and budget; {needed}",)
    if isinstance(network, Mixture) or network.edges or not wanted or len(sizes) < 2:
        return ()
    if blur > budget.min_useful_share:
        return (f"no edges: the attributes are independent in this model, since noise would hide any edge; {needed}",)
    return ("no edges: the attributes are independent in this model, since no dependence stood out from the noise",)


class _Learner(ABC):
    """Learns a model from records; a budget is opened, spent on noisy tables, and told in the claim."""

    __slots__ = ()

    @abstractmethod
    def _budget(self) -> Budget:
        """Return the whole budget, nothing of it spent."""

    @abstractmethod
    def _learn(self, records: Records, budget: Budget, rng: NoiseSource, progress: Progress) -> Learned:
        """Spend the budget; only what it measured may be in what comes out."""

    def claim(self) -> Claim:
        """Return what is promised before anything is looked at."""
        return self._budget().claim()

    def fit(
        self, records: Records, rng: NoiseSource | None = None, progress: Progress = lambda what, done: None
    ) -> LearnedNetwork:
        """Learn from the records; all noise is drawn afresh from the operating system unless a test source is given."""
        if rng is None:
            with NoiseSource() as fresh:
                return self.fit(records, fresh, progress)
        if len(records) < 1:
            raise InvalidParameter("records must not be empty")
        budget = self._budget()
        tables, network = self._learn(records, budget, rng, progress)
        progress("done", 1.0)
        notes = _notes(network, budget, len(records), getattr(self, "degree", None) != 0)
        return LearnedNetwork(network, budget.claim(rng), len(records), tuple(tables), notes)


@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianLearner(_Learner):
    """A learner at (epsilon, delta), by way of zCDP."""

    epsilon: float
    delta: float = 1e-9

    def __post_init__(self) -> None:
        checks.require_positive(epsilon=self.epsilon)
        checks.require_probability(delta=self.delta)

    def _budget(self) -> ZcdpBudget:
        return ZcdpBudget(self.epsilon, self.delta)


@dataclass(frozen=True, slots=True, kw_only=True)
class PureLearner(_Learner):
    """A learner at epsilon, without a delta."""

    epsilon: float

    def __post_init__(self) -> None:
        checks.require_positive(epsilon=self.epsilon)

    def _budget(self) -> PureBudget:
        return PureBudget(self.epsilon)
