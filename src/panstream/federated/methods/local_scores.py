"""Averaging local scores: the naive baseline that the thesis names and advises against (002, section 3.5)."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Literal

import numpy as np

from panstream.errors import InvalidParameter
from panstream.federated.analyst import Federation
from panstream.federated.answers import Introduction, Scores
from panstream.federated.methods.checks import check_common, check_split
from panstream.federated.methods.parameters import learn_parameters
from panstream.federated.methods.result import FederatedModel, finish
from panstream.federated.questions import LocalScores
from panstream.networks.baselines import greedy

__all__ = ["AverageScores"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AverageScores:
    """Holders send noisy local mutual informations; their mean (by records) or median is the score.

    **Privacy.** Pure epsilon towards every record, replace-one. Mutual information is not linear, so the average of the
    local values is not the value of the pooled table: a baseline, not a recommendation.
    """

    epsilon: float
    degree: int = 1
    root: int = 0
    split: float = 0.5
    average: Literal["mean", "median"] = "mean"

    def __post_init__(self) -> None:
        check_common(self.epsilon, self.degree)
        check_split(self.split)
        if self.average not in ("mean", "median"):
            raise InvalidParameter(f"average must be mean or median, got average={self.average!r}")

    def run(self, federation: Federation) -> FederatedModel:
        """Ask once for scores and once for tables."""
        count = len(federation.domain)
        families = _families(count, self.degree)
        question = LocalScores(
            run=federation.run, domain=federation.schema, families=tuple(families), epsilon=self.split * self.epsilon
        )

        def shaped(found: Scores, _: Introduction) -> None:
            if found.scores.shape != (len(families),):
                raise InvalidParameter("it sent another number of scores than was asked for")

        answers = federation.ask(question, Scores, shaped)
        scores = np.array([found.scores for _, found in answers], np.float64)
        weights = np.array([who.records for who, _ in answers], np.float64)
        pooled = np.average(scores, axis=0, weights=weights) if self.average == "mean" else np.median(scores, axis=0)
        known = dict(zip(families, pooled.tolist(), strict=True))
        order: list[int] = [self.root]
        parents = greedy(
            federation.domain,
            _no_tables,
            self.degree,
            root=self.root,
            score=lambda child, family: known[_key(family, child)],
        )
        order = _placing_order(parents, self.root)
        network = learn_parameters(federation, order, parents, self.degree, (1 - self.split) * self.epsilon)
        return finish(federation, network, f"{self.average} of local scores", epsilon=self.epsilon)


def _families(count: int, degree: int) -> list[tuple[int, ...]]:
    found: dict[tuple[int, ...], None] = {}
    for size in range(1, min(degree, count - 1) + 1):
        for members in itertools.combinations(range(count), size + 1):
            for child in members:
                found[_key(tuple(each for each in members if each != child), child)] = None
    return list(found)


def _key(parents: tuple[int, ...], child: int) -> tuple[int, ...]:
    return tuple(sorted((*parents, child))) if len(parents) == 1 else (*sorted(parents), child)


def _no_tables(_: tuple[int, ...]) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    raise InvalidParameter("the structure is learned from scores alone")


def _placing_order(parents: tuple[tuple[int, ...], ...], root: int) -> list[int]:
    """Return an order in which a greedy run may have placed the attributes: fewer parents first, parents before children."""
    placed, waiting = [root], [each for each in range(len(parents)) if each != root]
    while waiting:
        ready = [each for each in waiting if set(parents[each]) <= set(placed)]
        chosen = min(ready, key=lambda each: (len(parents[each]), each))
        placed.append(chosen)
        waiting.remove(chosen)
    return placed
