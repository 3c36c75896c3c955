"""The methods of Digalakis 2018, chapter 3: pure epsilon, Laplace noise, structures of a given degree.

As printed, holders set negative counts to 0 before they share them (section 3.3.3): ``clip_at_holder=True``. Every cell
that is nearly empty then gains half a noise scale per holder, and that bias acts as smoothing, much stronger than the 1
that every cell gets in both forms. By default negative counts are cut after summing, which keeps the sums unbiased.

Two methods need sums of tables only: the noisy sufficient statistics and the parameters of a given structure.
``secure=True`` asks for these by secure sums, which have the noise of one curator. The noise is then Gaussian, and the
claim (epsilon, delta).
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from panstream.errors import InvalidParameter
from panstream.models.federated._answers import HolderInfo, LocalModelAnswer, ScoresAnswer, VoteAnswer
from panstream.models.federated._questions import LocalModel, LocalScores, Table, Vote
from panstream.models.federated._statistics import Family, needed_tables
from panstream.models.federated.analyst import FederatedModel, Federation
from panstream.models.federated.secure_sums import MARGIN
from panstream.models.federated.summed_tables import SummedTables
from panstream.models.networks.domain import Domain
from panstream.models.networks.network import BayesianNetwork, topological_order
from panstream.models.networks.records import Records
from panstream.models.networks.sampling import sample
from panstream.models.networks.structure_search import (
    Parents,
    exact_tables,
    fit_tables,
    greedy,
    largest_families,
    marginal_tables,
)
from panstream.primitives import validation as checks
from panstream.primitives.noise import NoiseSource
from panstream.privacy.composition import zcdp_rho


@dataclass(frozen=True, slots=True, kw_only=True)
class _SumMethod:
    """Methods that need sums of tables only, which may be secure sums."""

    epsilon: float
    delta: float = 0.0
    clip_at_holder: bool = False
    secure: bool = False
    colluders: int | None = None
    dropouts: int | None = None

    def __post_init__(self) -> None:
        checks.require_finite(epsilon=self.epsilon)
        if self.secure:
            checks.require_probability(delta=self.delta)
            if self.clip_at_holder:
                raise InvalidParameter("no holder's counts can be cut in a secure sum: clip_at_holder must be False")
        elif self.delta or self.colluders is not None or self.dropouts is not None:
            raise InvalidParameter("delta, colluders and dropouts are for secure sums: give secure=True too")

    def _ask_sums(self, federation: Federation, sets: Sequence[tuple[int, ...]]) -> tuple[SummedTables, str]:
        """Return the sums of tables at equal shares of the budget, and the assumption of the claim."""
        if not self.secure:
            tables = [Table(attributes=attributes, budget=self.epsilon / len(sets)) for attributes in sets]
            return federation.sums("laplace", tables, clip=self.clip_at_holder), ""
        rho = zcdp_rho(self.epsilon, self.delta) * (1 - 2 * MARGIN)
        tables = [Table(attributes=attributes, budget=rho / len(sets)) for attributes in sets]
        sums = federation.secure_sums(tables, colluders=self.colluders, dropouts=self.dropouts)
        return sums, sums.claim_assumption(rho, self.delta)

    def _finish(
        self, federation: Federation, network: BayesianNetwork, method: str, assumption: str, **facts: Any
    ) -> FederatedModel:
        method_label = f"{method}, secure sums" if self.secure else method
        return federation.finish(
            network, method_label, epsilon=self.epsilon, delta=self.delta, assumption=assumption, **facts
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisyStatistics(_SumMethod):
    """Every holder sends all tables of ``degree + 1`` attributes with Laplace noise; the analyst learns from the sums.

    Sharing the noisy sufficient statistics (Digalakis 2018, Algorithm 3.5).

    Args:
        epsilon: Loss of every record.
        delta: The claimed delta; above 0 with ``secure`` only.
        clip_at_holder: Whether holders cut negative counts, as printed.
        secure: Whether the tables can be read only as a sum over all holders.
        colluders: How many holders may collude with the analyst; by default a third of them.
        dropouts: How many others may fail after a secure sum was closed; by default one of five holders or more.
        degree: Largest number of parents; tables have one attribute more.
        root: Position of the attribute without parents.

    **Privacy.** Pure epsilon towards every record, replace-one: C(N, k+1) tables at equal shares (Theorem 3.4). With
    ``secure`` (epsilon, delta) as for `FederatedPairs`: Gaussian noise of one holder on the sums.

    ``clip_at_holder`` sets negative counts to 0 before they are summed, as printed; else it is done after. The cells
    get 1 added.
    """

    degree: int = 1
    root: int = 0

    def __post_init__(self) -> None:
        _SumMethod.__post_init__(self)
        checks.require_integer_in_range(1, 8, degree=self.degree)

    def run(self, federation: Federation) -> FederatedModel:
        """Ask one question (two with ``secure``: keys first), then learn structure and parameters from the sums.

        Args:
            federation: The holders.
        """
        sets = [table.attributes for table in federation.all_tables(self.degree, self.epsilon)]
        sums, assumption = self._ask_sums(federation, sets)
        tables = sums.lookup()
        parents = greedy(federation.domain, tables, self.degree, root=self.root)
        network = fit_tables(federation.domain, parents, tables)
        return self._finish(federation, network, "noisy statistics", assumption, tables=len(sums.tables))


@dataclass(frozen=True, slots=True, kw_only=True)
class DistributedParameters(_SumMethod):
    """Learn the tables of a given structure: one question for all families, with Laplace noise.

    Distributed parameter learning (Digalakis 2018, Algorithm 3.4); ``clip_at_holder`` cuts negative counts as printed.

    Args:
        epsilon: Loss of every record.
        delta: The claimed delta; above 0 with ``secure`` only.
        clip_at_holder: Whether holders cut negative counts, as printed.
        secure: Whether the tables can be read only as a sum over all holders.
        colluders: How many holders may collude with the analyst; by default a third of them.
        dropouts: How many others may fail after a secure sum was closed; by default one of five holders or more.
        parents: For each attribute the positions of its parents.

    **Privacy.** Pure epsilon towards every record, replace-one. Families that lie within another one are summed from
    it, so fewer than N tables share the budget (N - k of them for a structure of the greedy kind). With ``secure``
    (epsilon, delta), Gaussian noise of one holder on the sums.
    """

    parents: Parents

    def __post_init__(self) -> None:
        _SumMethod.__post_init__(self)
        topological_order(self.parents)

    def run(self, federation: Federation) -> FederatedModel:
        """Ask one question (two with ``secure``: keys first) and fit the tables of the given structure.

        Args:
            federation: The holders.
        """
        sums, assumption = self._ask_sums(federation, largest_families(self.parents))
        network = fit_tables(federation.domain, self.parents, sums.lookup())
        return self._finish(federation, network, "distributed parameters", assumption)


@dataclass(frozen=True, slots=True, kw_only=True)
class _TwoStageMethod:
    """Methods that spend ``split`` of the budget on the structure and the rest on its tables."""

    epsilon: float
    degree: int = 1
    root: int = 0
    split: float = 0.5
    clip_at_holder: bool = False

    def __post_init__(self) -> None:
        checks.require_finite(epsilon=self.epsilon)
        checks.require_integer_in_range(1, 8, degree=self.degree)
        checks.require_probability(split=self.split)

    def _learn(self, federation: Federation, placed: Sequence[int], parents: Parents) -> BayesianNetwork:
        """Learn the tables of a greedy structure whose attributes were placed in this order: N - k tables suffice."""
        families = needed_tables(placed, parents, self.degree)
        share = (1 - self.split) * self.epsilon / len(families)
        tables = [Table(attributes=tuple(sorted(family)), budget=share) for family in families]
        sums = federation.sums("laplace", tables, clip=self.clip_at_holder)
        return fit_tables(federation.domain, parents, sums.lookup())


@dataclass(frozen=True, slots=True, kw_only=True)
class MajorityVoting(_TwoStageMethod):
    """The structure grows by votes: each holder names a (child, parents) by the exponential mechanism, most votes win.

    Noisy majority voting (Digalakis 2018, Algorithm 3.6); ``clip_at_holder`` cuts negative counts as printed.

    Args:
        epsilon: Loss of every record.
        degree: Largest number of parents.
        root: Position of the attribute without parents.
        split: Share of the budget for the structure.
        clip_at_holder: Whether holders cut negative counts, as printed.

    **Privacy.** Pure epsilon towards every record, replace-one: N - 1 votes share ``split·epsilon``, the tables the
    rest. Every holder scales its choices by the sensitivity at *its own* number of records; with the pooled number, as
    the thesis can be read, ten holders would lose 7.7 times what is claimed.

    Ties go to the vote of the holder named first.
    """

    def run(self, federation: Federation) -> FederatedModel:
        """Ask N - 1 times for a vote and once for tables.

        Args:
            federation: The holders.
        """
        count = len(federation.domain)
        placed = [self.root]
        agreed = 0
        parents: list[tuple[int, ...]] = [()] * count
        share = self.split * self.epsilon / max(count - 1, 1)
        while len(placed) < count:
            question = Vote(
                run=federation.run, domain=federation.schema, placed=tuple(placed), degree=self.degree, epsilon=share
            )
            allowed = set(question.candidates(count))

            def check(choice: VoteAnswer, _: object, allowed: set[Family] = allowed) -> None:
                if (choice.child, choice.parents) not in allowed:
                    raise InvalidParameter("it voted for a family that was not up for election")

            votes = Counter((vote.child, vote.parents) for _, vote in federation.ask(question, VoteAnswer, check))
            (winner, winner_votes), *_ = votes.most_common(1)
            agreed += winner_votes > 1
            child, parents[child] = winner
            placed.append(child)
            federation.report(f"placed {len(placed)} of {count} attributes")
        network = self._learn(federation, placed, tuple(parents))
        return federation.finish(network, "majority voting", epsilon=self.epsilon, rounds_with_agreement=agreed)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisyModel(_TwoStageMethod):
    """Every holder learns a network locally and sends it; the analyst learns from samples of all of them.

    Sharing the noisy model (Digalakis 2018, Algorithm 3.7). Negative counts of a family are cut in any case;
    ``clip_at_holder`` also cuts them before the root's table is summed from one.

    Args:
        epsilon: Loss of every record.
        degree: Largest number of parents.
        root: Position of the attribute without parents.
        split: Share of the budget for the structure.
        clip_at_holder: Whether holders also cut negative counts before the root's table is summed.
        rng_factory: Makes the source of the samples; for tests.

    **Privacy.** Pure epsilon towards every record, replace-one; sampling and learning from samples cost nothing.
    """

    rng_factory: Callable[[], NoiseSource] = field(default=NoiseSource, compare=False)

    def run(self, federation: Federation) -> FederatedModel:
        """Ask one question for the local models and fit a network to records sampled from them.

        Args:
            federation: The holders.
        """
        domain = federation.domain
        question = LocalModel(
            run=federation.run,
            domain=federation.schema,
            degree=self.degree,
            root=self.root,
            structure=self.split * self.epsilon,
            parameters=(1 - self.split) * self.epsilon,
        )
        pieces = []
        for holder, model in federation.ask(question, LocalModelAnswer, lambda answer, _: _check_model(answer, domain)):
            with self.rng_factory() as rng:
                pieces.append(sample(_network(model, domain, clip=self.clip_at_holder), holder.records, rng).codes)
        tables = exact_tables(Records(domain, np.concatenate(pieces, axis=1)))
        network = fit_tables(domain, greedy(domain, tables, self.degree, root=self.root), tables)
        return federation.finish(network, "noisy model", epsilon=self.epsilon)


def _network(model: LocalModelAnswer, domain: Domain, *, clip: bool = False) -> BayesianNetwork:
    if not clip:
        return fit_tables(domain, model.parents, lambda family: model.tables[family[-1]])
    # Sum the smaller tables again from the largest ones after clipping: the holder summed them before.
    families = [(*parents, child) for child, parents in enumerate(model.parents)]
    largest = [family for family in families if not any(set(family) < set(other) for other in families)]
    return fit_tables(
        domain, model.parents, marginal_tables({family: np.maximum(model.tables[family[-1]], 0) for family in largest})
    )


def _check_model(model: LocalModelAnswer, domain: Domain) -> None:
    families = [(*family, child) for child, family in enumerate(model.parents)]
    inside = all(0 <= attribute < len(domain) for family in families for attribute in family)
    if len(model.parents) != len(domain) or not inside:
        raise InvalidParameter("its model is not over the domain that was agreed on")
    shapes = [tuple(domain.sizes[attribute] for attribute in family) for family in families]
    if [table.shape for table in model.tables] != shapes:
        raise InvalidParameter("the tables of its model have wrong shapes")
    _network(model, domain)


@dataclass(frozen=True, slots=True, kw_only=True)
class AverageScores(_TwoStageMethod):
    """Holders send noisy local mutual informations; their mean (by records) or median is the score.

    The naive baseline that the thesis names and advises against.

    Args:
        epsilon: Loss of every record.
        degree: Largest number of parents.
        root: Position of the attribute without parents.
        split: Share of the budget for the structure.
        clip_at_holder: Whether holders cut negative counts, as printed.
        average: How the holders' scores become one.

    **Privacy.** Pure epsilon towards every record, replace-one. Mutual information is not linear, so the average of the
    local values is not the value of the pooled table: a baseline, not a recommendation.
    """

    average: Literal["mean", "median"] = "mean"

    def __post_init__(self) -> None:
        _TwoStageMethod.__post_init__(self)
        if self.average not in ("mean", "median"):
            raise InvalidParameter(f"average must be mean or median, got average={self.average!r}")

    def run(self, federation: Federation) -> FederatedModel:
        """Ask one question for scores and one for tables.

        Args:
            federation: The holders.
        """
        families = _all_families(len(federation.domain), self.degree)
        question = LocalScores(
            run=federation.run, domain=federation.schema, families=tuple(families), epsilon=self.split * self.epsilon
        )

        def shaped(answer: ScoresAnswer, _: HolderInfo) -> None:
            if answer.scores.shape != (len(families),):
                raise InvalidParameter("it sent another number of scores than was asked for")

        answers = federation.ask(question, ScoresAnswer, shaped)
        scores = np.array([answer.scores for _, answer in answers], np.float64)
        weights = np.array([holder.records for holder, _ in answers], np.float64)
        pooled = np.average(scores, axis=0, weights=weights) if self.average == "mean" else np.median(scores, axis=0)
        score_by_family = dict(zip(families, pooled.tolist(), strict=True))
        parents = greedy(
            federation.domain,
            lambda _: np.empty(0),  # not used: the score below replaces the tables
            self.degree,
            root=self.root,
            score=lambda child, family: score_by_family[_key(family, child)],
        )
        network = self._learn(federation, _placing_order(parents, self.root), parents)
        return federation.finish(network, f"{self.average} of local scores", epsilon=self.epsilon)


def _all_families(count: int, degree: int) -> list[tuple[int, ...]]:
    families: dict[tuple[int, ...], None] = {}
    for size in range(1, min(degree, count - 1) + 1):
        for members in itertools.combinations(range(count), size + 1):
            for child in members:
                families[_key(tuple(parent for parent in members if parent != child), child)] = None
    return list(families)


def _key(parents: tuple[int, ...], child: int) -> tuple[int, ...]:
    return tuple(sorted((*parents, child))) if len(parents) == 1 else (*sorted(parents), child)


def _placing_order(parents: Parents, root: int) -> list[int]:
    """Return an order in which a greedy search may have placed attributes: parents first, then by parent count."""
    placed = [root]
    waiting = [attribute for attribute in range(len(parents)) if attribute != root]
    while waiting:
        ready = [attribute for attribute in waiting if set(parents[attribute]) <= set(placed)]
        chosen = min(ready, key=lambda attribute: (len(parents[attribute]), attribute))
        placed.append(chosen)
        waiting.remove(chosen)
    return placed
