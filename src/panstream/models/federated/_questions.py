"""The questions an analyst may put to a holder, each with its loss and the code that draws the answer.

A question is a frozen value; its digest is its name in every ledger. ``run`` is the analyst's label: the same question
under the same label gets the stored answer again, free of charge. Another label makes another question, with fresh
noise and a fresh charge.

An answer is the exact statistics plus discrete noise, and nothing else: clipping, normalising and fitting are left to
the analyst, so the loss of an answer is that of its noise.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from panstream.errors import InvalidParameter
from panstream.models.federated._answers import LocalModelAnswer, ScoresAnswer, TablesAnswer, VoteAnswer
from panstream.models.federated._messages import Message, MessageBody, list_of, one_of
from panstream.models.federated._statistics import Family, Statistics, needed_tables
from panstream.models.networks.domain import Domain
from panstream.models.networks.noisy_tables import merge_categories
from panstream.models.networks.structure_search import marginal_tables
from panstream.primitives import validation as checks
from panstream.primitives.noise import DiscreteGaussian, DiscreteLaplace, NoiseSource
from panstream.privacy.holder_loss import Loss
from panstream.privacy.rounding import equal_share
from panstream.privacy.table_loss import table_kappa, table_sigma

Noise: TypeAlias = Literal["laplace", "gaussian"]
Groups: TypeAlias = tuple[int, ...] | None
# Limits on the work that one question can cause, so that an analyst cannot keep a holder busy.
_LARGEST_CELLS = 1 << 25
_LARGEST_CANDIDATES = 1 << 20
_LARGEST_TABLES = 1 << 20
_LARGEST_DEGREE = 8


_natural = one_of(lambda value: type(value) is int and 0 <= value < 1 << 31)
_number = one_of(lambda value: type(value) in (int, float))
_positions = list_of(_natural)
_Text = Annotated[str, one_of(lambda value: isinstance(value, str) and len(value) <= 200)]
_Number = Annotated[float, lambda value: float(_number(value))]
_Noise = Annotated[Noise, lambda value: value]
_Families = Annotated[tuple[tuple[int, ...], ...], lambda families: tuple(map(_positions, families))]
Natural = Annotated[int, _natural]


def _check_cells(label: str, cells: int) -> None:
    if cells > _LARGEST_CELLS:
        raise InvalidParameter(f"the {label} have {cells} cells, above the limit of {_LARGEST_CELLS}")


def _check_degree(domain: Domain, degree: int, placed: int) -> None:
    if math.prod(sorted(domain.sizes)[-(degree + 1) :]) > _LARGEST_CELLS:
        raise InvalidParameter(f"a table of degree {degree} may be above the limit of {_LARGEST_CELLS} cells")
    candidates = math.comb(placed, degree) * len(domain)
    if candidates > _LARGEST_CANDIDATES:
        raise InvalidParameter(
            f"degree {degree} gives up to {candidates} families, above the limit of {_LARGEST_CANDIDATES}"
        )


def _candidates(placed: Sequence[int], degree: int, count: int) -> list[Family]:
    sets = list(itertools.combinations(sorted(placed), min(degree, len(placed))))
    return [(child, parents) for child in range(count) if child not in placed for parents in sets]


def _add_noise(counts: NDArray[np.int64], noise: Noise, budget: float | Fraction, rng: NoiseSource) -> None:
    if noise == "laplace":
        rng.add_discrete_laplace(counts, DiscreteLaplace.at_most(table_kappa(budget)))
    else:
        rng.add_discrete_gaussian(counts, DiscreteGaussian.at_least(table_sigma(float(budget))))


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table of counts: its attributes, its share of the budget, and optionally coarser categories.

    ``budget`` is epsilon for Laplace noise and rho for Gaussian noise. ``groups[a][code]`` is the group that a code of
    the a-th attribute falls into; ``None`` means the attribute's own categories.
    """

    attributes: tuple[int, ...]
    budget: float
    groups: tuple[Groups, ...] = ()

    def __post_init__(self) -> None:
        checks.require_finite(budget=self.budget)
        if not self.attributes or len(set(self.attributes)) != len(self.attributes) or min(self.attributes) < 0:
            raise InvalidParameter("the attributes of a table must be distinct positions, at least one")
        if self.groups and len(self.groups) != len(self.attributes):
            raise InvalidParameter("groups must be empty or have one entry per attribute")
        for group in self.groups:
            if group is not None and (not group or set(group) != set(range(max(group) + 1))):
                raise InvalidParameter("groups must be numbered from 0 without gaps")

    @classmethod
    def read(cls, values: Any) -> Table:
        """Decode [attributes, budget, groups]; raise TypeError or InvalidParameter."""
        attributes, budget, groups = values
        joined = tuple(None if group is None else _positions(group) for group in groups)
        return cls(attributes=_positions(attributes), budget=float(_number(budget)), groups=joined)

    def group(self, axis: int) -> Groups:
        """Return the group of each code along one axis, or None where codes are not grouped."""
        return self.groups[axis] if self.groups else None

    def shape(self, domain: Domain) -> tuple[int, ...]:
        """Return the shape of the table after its codes are merged into groups."""
        groups = [self.group(axis) for axis in range(len(self.attributes))]
        return tuple(
            domain.sizes[attribute] if group is None else max(group) + 1
            for attribute, group in zip(self.attributes, groups, strict=True)
        )

    def counts(self, statistics: Statistics) -> NDArray[np.int64]:
        """Return the exact counts with codes merged into groups; without groups, the cached array itself."""
        counts = statistics.exact(self.attributes)
        for axis in range(counts.ndim):
            group = self.group(axis)
            if group is not None:
                counts = merge_categories(counts, np.array(group), axis)
        return counts


TablesAsked = Annotated[
    tuple[Table, ...],
    lambda tables: tuple(map(Table.read, tables)),
    lambda tables: [[table.attributes, table.budget, table.groups] for table in tables],
]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question(MessageBody):
    """A question with its run label."""

    run: _Text

    def write(self) -> bytes:
        """Return the question's bytes: equal for equal questions on every platform."""
        return Message(kind=self.kind, fields=self.fields()).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class InfoQuestion(_Question):
    """Ask for a holder's name, number of records (public), domain digest, budget and what is left of it. Free."""

    kind = "introduce"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordQuestion(_Question):
    """A question about records; ``check`` raises InvalidParameter where it does not fit the domain.

    Subclasses that are charged have ``loss``, a function of the question only and never of the records, and ``draw``,
    which returns the private answer to a question that passed ``check``.
    """

    domain: _Text

    @property
    def assumption(self) -> str:
        """Return the assumption that ``loss`` rests on; empty if it holds however other parties behave."""
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountTables(RecordQuestion):
    """Noisy tables of counts, unclipped; the cost is the sum of the tables' budgets."""

    kind = "count-tables"

    noise: _Noise
    tables: TablesAsked

    def __post_init__(self) -> None:
        if self.noise not in ("laplace", "gaussian"):
            raise InvalidParameter(f"noise must be laplace or gaussian, got noise={self.noise!r}")
        if not 1 <= len(self.tables) <= _LARGEST_TABLES:
            raise InvalidParameter(f"tables must be 1..{_LARGEST_TABLES}, got {len(self.tables)}")

    def check(self, domain: Domain) -> None:
        """Refuse attributes outside the domain, groups that do not cover one, and too many cells."""
        _check_cells("tables", sum(math.prod(domain.shape(table.attributes)) for table in self.tables))
        for table in self.tables:
            for axis, attribute in enumerate(table.attributes):
                group = table.group(axis)
                size = domain.sizes[attribute]
                if group is not None and len(group) != size:
                    raise InvalidParameter(f"groups of attribute {attribute} must cover its {size} codes")

    def loss(self) -> Loss:
        """Return the sum of the tables' budgets, in the noise's currency."""
        budgets = [table.budget for table in self.tables]
        return Loss.pure(budgets) if self.noise == "laplace" else Loss.gaussian(budgets)

    def draw(self, statistics: Statistics, rng: NoiseSource) -> TablesAnswer:
        """Add noise to every cell; tables of equal budgets that follow each other share one call."""
        exact = [table.counts(statistics) for table in self.tables]
        noisy = np.concatenate([counts.reshape(-1) for counts in exact])
        ends = np.cumsum([counts.size for counts in exact]).tolist()
        budgets = [table.budget for table in self.tables]
        start = 0
        for budget, run in itertools.groupby(zip(budgets, ends, strict=True), key=lambda pair: pair[0]):
            *_, (_, end) = run
            _add_noise(noisy[start:end], self.noise, budget, rng)
            start = end
        pieces = np.split(noisy, ends[:-1])
        return TablesAnswer(
            tables=tuple(piece.reshape(counts.shape) for piece, counts in zip(pieces, exact, strict=True))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote(RecordQuestion):
    """Ask which attribute to add next, with ``min(degree, placed)`` of the placed ones as its parents."""

    kind = "vote"

    placed: Annotated[tuple[int, ...], _positions]
    degree: Natural
    epsilon: _Number

    def __post_init__(self) -> None:
        checks.require_finite(epsilon=self.epsilon)
        checks.require_integer_in_range(1, _LARGEST_DEGREE, degree=self.degree)
        if not self.placed or len(set(self.placed)) != len(self.placed) or min(self.placed) < 0:
            raise InvalidParameter("placed must hold distinct positions, at least one")

    def check(self, domain: Domain) -> None:
        """Refuse positions outside the domain, and too many candidates."""
        if max(self.placed) >= len(domain) or len(self.placed) >= len(domain):
            raise InvalidParameter(f"placed must leave an attribute out of 0..{len(domain) - 1}")
        _check_degree(domain, min(self.degree, len(self.placed)), len(self.placed))

    def candidates(self, count: int) -> list[Family]:
        """Return every family that may be chosen in a domain of ``count`` attributes, in a fixed order."""
        return _candidates(self.placed, self.degree, count)

    def loss(self) -> Loss:
        """Return the loss of one run of the exponential mechanism."""
        return Loss.of_choice(self.epsilon)

    def draw(self, statistics: Statistics, rng: NoiseSource) -> VoteAnswer:
        """Choose one family by the exponential mechanism."""
        child, parents = statistics.vote(self.candidates(len(statistics.domain)), self.epsilon, rng)
        return VoteAnswer(child=child, parents=parents)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalModel(RecordQuestion):
    """Ask for a network learned from this holder's records only: structure by private choices, then Laplace tables."""

    kind = "local-model"

    degree: Natural
    root: Natural
    structure: _Number
    parameters: _Number

    def __post_init__(self) -> None:
        checks.require_finite(structure=self.structure, parameters=self.parameters)
        checks.require_integer_in_range(1, _LARGEST_DEGREE, degree=self.degree)
        if self.root < 0:
            raise InvalidParameter(f"root must be a position, got root={self.root}")

    def check(self, domain: Domain) -> None:
        """Refuse a root outside the domain, and too many candidates."""
        if self.root >= len(domain):
            raise InvalidParameter(f"root must be in 0..{len(domain) - 1}, got root={self.root}")
        _check_degree(domain, min(self.degree, len(domain) - 1), len(domain) - 1)

    def loss(self) -> Loss:
        """Return ``structure + parameters``, as pure epsilon."""
        return Loss.pure([self.structure, self.parameters])

    def draw(self, statistics: Statistics, rng: NoiseSource) -> LocalModelAnswer:
        """Learn a network locally (Digalakis 2018, Algorithms 3.2 and 3.3): N - 1 choices, then the needed tables."""
        count = len(statistics.domain)
        placed = [self.root]
        parents: list[tuple[int, ...]] = [()] * count
        structure = equal_share(self.structure, max(count - 1, 1))
        while len(placed) < count:
            child, parents[child] = statistics.vote(_candidates(placed, self.degree, count), structure, rng)
            placed.append(child)
        noisy_tables = {axes: statistics.exact(axes).copy() for axes in needed_tables(placed, parents, self.degree)}
        for table in noisy_tables.values():
            _add_noise(table.reshape(-1), "laplace", equal_share(self.parameters, len(noisy_tables)), rng)
        tables = marginal_tables(noisy_tables)
        return LocalModelAnswer(
            parents=tuple(parents), tables=tuple(tables((*parents[attribute], attribute)) for attribute in range(count))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalScores(RecordQuestion):
    """The local mutual information of each family ``(*parents, child)``, with Laplace noise."""

    kind = "local-scores"

    families: _Families
    epsilon: _Number

    def __post_init__(self) -> None:
        checks.require_finite(epsilon=self.epsilon)
        if not 1 <= len(self.families) <= _LARGEST_TABLES:
            raise InvalidParameter(f"families must be 1..{_LARGEST_TABLES}, got {len(self.families)}")
        for family in self.families:
            if not 2 <= len(set(family)) == len(family) <= _LARGEST_DEGREE + 1 or min(family) < 0:
                raise InvalidParameter("a family must have distinct positions, a child and at least one parent")

    def check(self, domain: Domain) -> None:
        """Refuse families outside the domain, and too many cells."""
        _check_cells("families", sum(math.prod(domain.shape(family)) for family in self.families))

    def loss(self) -> Loss:
        """Return ``epsilon``, as equal shares of one score each."""
        return Loss.pure([equal_share(self.epsilon, len(self.families))] * len(self.families))

    def draw(self, statistics: Statistics, rng: NoiseSource) -> ScoresAnswer:
        """Add Laplace noise to every score; binary families have a smaller sensitivity and get less."""
        score_epsilon = equal_share(self.epsilon, len(self.families))
        scores = np.array([statistics.score(family) for family in self.families], np.int64)
        binary = np.array([statistics.is_binary(family) for family in self.families])
        for kind in (True, False):
            chosen = scores[binary == kind]
            rng.add_discrete_laplace(chosen, DiscreteLaplace.at_most(score_epsilon / statistics.sensitivity(kind)))
            scores[binary == kind] = chosen
        return ScoresAnswer(scores=scores)
