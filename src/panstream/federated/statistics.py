"""How a holder computes an answer: exact statistics of its records, then noise on whole numbers, then nothing else.

The exact statistics are cached beside the records they come from and never leave; only what the noise was added to does.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from panstream.errors import InvalidParameter
from panstream.federated.answers import SCORE_UNIT, Answer, Choice, Model, Scores, Tables
from panstream.federated.questions import CountTables, LocalModel, LocalScores, Question, Table, Vote
from panstream.networks.counting import contingency
from panstream.networks.domain import Domain
from panstream.networks.information import mutual_information
from panstream.networks.records import Records
from panstream.privacy.holders import (
    Loss,
    choice_loss,
    pure_loss,
    zcdp_loss,
)
from panstream.privacy.rounding import share
from panstream.privacy.tables import choice_rate, mutual_information_sensitivity, table_kappa, table_sigma
from panstream.randomness import DiscreteGaussian, DiscreteLaplace, Preference, Source

__all__ = ["LARGEST_CELLS", "Statistics", "check", "draw", "families", "loss_of"]

LARGEST_CELLS = 1 << 25
LARGEST_CANDIDATES = 1 << 20
_LARGEST_CACHE = 1 << 22
_SLACK = 2  # a score is rounded down to a whole number, and computed in floating point


class Statistics:
    """The exact counts and scores of one table of records, computed once each."""

    __slots__ = ("_kept", "_scores", "_tables", "records")

    def __init__(self, records: Records) -> None:
        self.records = records
        self._scores: dict[tuple[int, ...], int] = {}
        self._tables: dict[tuple[int, ...], NDArray[np.int64]] = {}
        self._kept = 0

    def exact(self, attributes: tuple[int, ...]) -> NDArray[np.int64]:
        """Return exact counts, which must not be changed."""
        table = self._tables.get(attributes)
        if table is None:
            table = contingency(self.records, attributes)
            if self._kept + table.size <= _LARGEST_CACHE:
                self._tables[attributes] = table
                self._kept += table.size
        return table

    def counts(self, table: Table) -> NDArray[np.int64]:
        """Return the exact counts of a table, with its codes joined into groups."""
        counts = self.exact(table.attributes)
        for axis in range(counts.ndim):
            group = table.group(axis)
            if group is not None:
                counts = _grouped(counts, axis, np.array(group))
        return counts

    def score(self, family: tuple[int, ...]) -> int:
        """Return the mutual information of (*parents, child) in whole units of 2^-24 bits."""
        found = self._scores.get(family)
        if found is None:
            # Two attributes say the same about each other either way, so one table serves both.
            key = tuple(sorted(family)) if len(family) == 2 else family
            found = math.floor(mutual_information(self.exact(key)) * SCORE_UNIT)
            self._scores[family] = found
        return found


def check(question: Question, domain: Domain) -> None:
    """Raise InvalidParameter where a question does not fit the domain."""
    count = len(domain)
    match question:
        case CountTables(tables=tables):
            cells = 0
            for table in tables:
                cells += math.prod(domain.shape(table.attributes))
                for axis, attribute in enumerate(table.attributes):
                    group = table.group(axis)
                    if group is not None and len(group) != domain.sizes[attribute]:
                        raise InvalidParameter(
                            f"groups of attribute {attribute} must cover its {domain.sizes[attribute]} codes"
                        )
            if cells > LARGEST_CELLS:
                raise InvalidParameter(f"the tables have {cells} cells, above the limit of {LARGEST_CELLS}")
        case Vote(placed=placed, degree=degree):
            if max(placed) >= count or len(placed) >= count:
                raise InvalidParameter(f"placed must leave an attribute out of 0..{count - 1}")
            _check_degree(domain, min(degree, len(placed)), len(placed))
        case LocalModel(root=root, degree=degree):
            if root >= count:
                raise InvalidParameter(f"root must be in 0..{count - 1}, got root={root}")
            _check_degree(domain, min(degree, count - 1), count - 1)
        case LocalScores(families=asked):
            cells = sum(math.prod(domain.shape(family)) for family in asked)
            if cells > LARGEST_CELLS:
                raise InvalidParameter(f"the families have {cells} cells, above the limit of {LARGEST_CELLS}")
        case _:
            pass


def _check_degree(domain: Domain, degree: int, placed: int) -> None:
    """Refuse what would keep a holder busy for ever."""
    if math.prod(sorted(domain.sizes)[-(degree + 1) :]) > LARGEST_CELLS:
        raise InvalidParameter(f"a table of degree {degree} may be above the limit of {LARGEST_CELLS} cells")
    candidates = math.comb(placed, degree) * len(domain)
    if candidates > LARGEST_CANDIDATES:
        raise InvalidParameter(
            f"degree {degree} gives up to {candidates} families, above the limit of {LARGEST_CANDIDATES}"
        )


def loss_of(question: Question) -> Loss:
    """Return what answering costs; it depends on the question alone."""
    match question:
        case CountTables(noise="laplace", tables=tables):
            return pure_loss(table.budget for table in tables)
        case CountTables(tables=tables):
            return zcdp_loss(table.budget for table in tables)
        case Vote(epsilon=epsilon):
            return choice_loss(epsilon)
        case LocalScores(epsilon=epsilon, families=asked):
            return pure_loss([share(epsilon, len(asked))] * len(asked))
        case LocalModel(structure=structure, parameters=parameters):
            return pure_loss([structure, parameters])
        case _:
            return Loss()


def draw(question: Question, statistics: Statistics, source: Source) -> Answer:
    """Return a private answer to a question that :func:`check` let pass."""
    match question:
        case CountTables():
            return Tables(tables=_tables(question, statistics, source))
        case Vote():
            child, parents = _vote(statistics, question.placed, question.degree, question.epsilon, source)
            return Choice(child=child, parents=parents)
        case LocalModel():
            return _model(question, statistics, source)
        case LocalScores():
            return Scores(scores=_scores(question, statistics, source))
        case _:
            raise InvalidParameter("an introduction is not drawn")


def families(placed: Sequence[int], degree: int, count: int) -> list[tuple[int, tuple[int, ...]]]:
    """Return every (child, parents) that may come next, in a fixed order."""
    size = min(degree, len(placed))
    sets = list(itertools.combinations(sorted(placed), size))
    return [(child, parents) for child in range(count) if child not in placed for parents in sets]


def _tables(question: CountTables, statistics: Statistics, source: Source) -> tuple[NDArray[np.int64], ...]:
    exact = [statistics.counts(table) for table in question.tables]
    noisy = np.concatenate([counts.reshape(-1) for counts in exact])
    ends = np.cumsum([counts.size for counts in exact]).tolist()
    budgets = [table.budget for table in question.tables]
    start = 0
    for budget, run in itertools.groupby(zip(budgets, ends, strict=True), key=lambda each: each[0]):
        *_, (_, end) = run
        _add_noise(noisy[start:end], question.noise, budget, source)  # one call for tables of equal shares
        start = end
    pieces = np.split(noisy, ends[:-1])
    return tuple(piece.reshape(counts.shape) for piece, counts in zip(pieces, exact, strict=True))


def _add_noise(counts: NDArray[np.int64], noise: str, budget: float | Fraction, source: Source) -> None:
    if noise == "laplace":
        source.add_discrete_laplace(counts, DiscreteLaplace.at_most(table_kappa(budget)))
    else:
        source.add_discrete_gaussian(counts, DiscreteGaussian.at_least(table_sigma(float(budget))))


def _vote(
    statistics: Statistics, placed: Sequence[int], degree: int, epsilon: float | Fraction, source: Source
) -> tuple[int, tuple[int, ...]]:
    """Choose by the exponential mechanism on mutual information, with this holder's own number of records."""
    records = statistics.records
    candidates = families(placed, degree, len(records.domain))
    binary = all(_is_binary(records.domain, (*parents, child)) for child, parents in candidates)
    unit = _sensitivity(len(records), binary)
    utilities = np.array([statistics.score((*parents, child)) for child, parents in candidates], np.int64)
    return candidates[source.exponential(utilities, Preference.at_most(choice_rate(epsilon, unit)))]


def _is_binary(domain: Domain, family: tuple[int, ...]) -> bool:
    sizes = domain.sizes
    return sizes[family[-1]] <= 2 or math.prod(sizes[each] for each in family[:-1]) <= 2


def _sensitivity(records: int, binary: bool) -> int:
    """Return the sensitivity of a score in whole units; the general one is never smaller than that of binary families."""
    units = max(
        mutual_information_sensitivity(max(1, records), binary=each) for each in ({True} if binary else {True, False})
    )
    return math.ceil(units * SCORE_UNIT) + _SLACK


def _model(question: LocalModel, statistics: Statistics, source: Source) -> Model:
    """Learn alone (002, Algorithms 3.2 and 3.3): N-1 choices, then one table for each family not inside another."""
    count = len(statistics.records.domain)
    placed = [question.root]
    parents: list[tuple[int, ...]] = [()] * count
    structure = share(question.structure, max(count - 1, 1))
    while len(placed) < count:
        child, parents[child] = _vote(statistics, placed, question.degree, structure, source)
        placed.append(child)
    asked = needed_tables(placed, parents, question.degree)
    each = share(question.parameters, len(asked))
    known = {axes: statistics.exact(axes).copy() for axes in asked}
    for table in known.values():
        _add_noise(table.reshape(-1), "laplace", each, source)
    return Model(parents=tuple(parents), tables=tuple(_sum_to(known, (*parents[at], at)) for at in range(count)))


def needed_tables(placed: Sequence[int], parents: Sequence[tuple[int, ...]], degree: int) -> list[tuple[int, ...]]:
    """Return the families whose tables suffice: N - k of them, since the first k lie within the next one's family."""
    chain = [(*parents[at], at) for at in placed]
    return chain[min(degree, len(chain) - 1) :]


def _sum_to(known: dict[tuple[int, ...], NDArray[np.int64]], family: tuple[int, ...]) -> NDArray[np.int64]:
    for axes, table in known.items():
        if set(family) <= set(axes):
            rest = tuple(at for at, each in enumerate(axes) if each not in family)
            kept = [each for each in axes if each in family]
            return np.ascontiguousarray(np.transpose(table.sum(axis=rest), [kept.index(each) for each in family]))
    raise InvalidParameter(f"no table holds the family {family}")


def _scores(question: LocalScores, statistics: Statistics, source: Source) -> NDArray[np.int64]:
    each = share(question.epsilon, len(question.families))
    records = statistics.records
    scores = np.array([statistics.score(family) for family in question.families], np.int64)
    binary = np.array([_is_binary(records.domain, family) for family in question.families])
    for kind in (True, False):
        chosen = scores[binary == kind]
        source.add_discrete_laplace(chosen, DiscreteLaplace.at_most(each / _sensitivity(len(records), kind)))
        scores[binary == kind] = chosen
    return scores


def _grouped(counts: NDArray[np.int64], axis: int, group: NDArray[np.int64]) -> NDArray[np.int64]:
    moved = np.moveaxis(counts, axis, 0)
    summed = np.zeros((int(group.max()) + 1, *moved.shape[1:]), np.int64)
    np.add.at(summed, group, moved)
    return np.moveaxis(summed, 0, axis)
