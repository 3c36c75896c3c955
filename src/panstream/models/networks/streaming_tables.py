"""StreamingTables: pan-private one- and two-way tables of a stream at every tick, without storing rows."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.continual.grid import GridBatch
from panstream.algorithms.continual.noise_sum_tails import error_bound, half_width
from panstream.algorithms.continual.noisy_tree import NoisyTree, TreeState
from panstream.algorithms.continual.tree_base import Arrays, Tree
from panstream.algorithms.continual.tree_shape import TreeShape
from panstream.core.estimate import Estimate
from panstream.errors import InvalidBatch, InvalidParameter, MergeError
from panstream.models.networks.budget import split_proportionally
from panstream.models.networks.domain import Domain
from panstream.models.networks.learner import LearnedNetwork
from panstream.models.networks.noisy_tables import NoisyTable
from panstream.models.networks.pair_fit import fit_pair_model
from panstream.models.networks.records import Records
from panstream.primitives import validation as checks
from panstream.primitives.kernels.models.contingency import count, count_pairs
from panstream.primitives.memory.scratch import wipe
from panstream.primitives.noise import DiscreteGaussian, DiscreteLaplace, NoiseSource
from panstream.privacy.continual_loss import gaussian_losses, tables_laws

_MAX_CELLS = 1 << 22
_ONES = Fraction(3, 10)  # share of the budget for one-way tables
_PAIRS = Fraction(7, 10)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamingTables(Tree):
    """The tables of all attributes and of all pairs so far, at every tick, and networks learned from them.

    Every cell of every table is a counter of a tree over time: it starts as noise, a record moves one cell of every
    table, and closed nodes are released with fresh noise and start again. The rows themselves are never stored.
    ``tick`` answers with the number of records so far; ``tables`` and ``model`` use the same released numbers.

    Privacy:
        Unit: one record added or removed, anywhere in time (``contributions=K``: a user of at most K records). A record
        is in one cell of each of d(d+1)/2 tables on each of ``levels`` levels. One copy of the state at any time and
        all outputs lose ``epsilon`` and ``delta``; any number of announced copies with a refresh too. Start and release
        noise of a node hide different records, so each uses the full budget.
        Proof: docs/proofs/continual-tree.md, Theorem 9.

    Error:
        A cell has noise of variance 2·levels·(nodes in the answer)/(2·rho·share), see ``sigma`` of the tables; the
        shares grow like cells^(2/3). ``records_needed`` returns the number of records that makes it small.
        ``error_bound`` is about the number of records.

    Args:
        epsilon: Total privacy loss; ``math.inf`` switches all noise off, for tests.
        horizon: Maximum number of ticks; must be given.
        domain: The values that each attribute of a record can take.
        delta: 0 for discrete Laplace noise, which grows with the number of tables; otherwise
            discrete Gaussian, which grows with its square root.

    Merging:
        ``a.merge(b)`` adds the tables of two sites that have closed as many slots, and their noise.

    Examples:
        >>> domain = Domain({"rain": ["no", "yes"], "wet": ["no", "yes"]})
        >>> monitor = StreamingTables(domain=domain, epsilon=1.0, delta=1e-6, horizon=2).start()
        >>> monitor.update({"rain": ["no", "yes"] * 1000, "wet": ["no", "yes"] * 1000})
        >>> abs(monitor.tick().value - 2000) < 200
        True
        >>> learned = monitor.algorithm.model(monitor.state)
        >>> bool(learned.network.posterior(["wet"], {"rain": "yes"})[1] > 0.9)
        True

    Reference: Digalakis 2018, chapter 5, names networks over streams as open; docs/proofs/continual-tree.md, Theorem 9.
    """

    theorem: ClassVar[str] = "Theorem 9"

    needs_horizon: ClassVar[bool] = True

    domain: Domain

    def check(self) -> None:
        """Raise InvalidParameter unless domain and horizon fit."""
        if not isinstance(self.domain, Domain) or len(self.domain) < 2:
            raise InvalidParameter("domain must be a Domain of two attributes or more")
        if self.horizon is None or self.one_step_ticks:
            raise InvalidParameter("horizon must be given, and one_step_ticks must not: slots take many records")
        if self.width > _MAX_CELLS:
            raise InvalidParameter(f"all tables have {self.width:,} cells, above the limit of {_MAX_CELLS:,}")

    def parameters(self) -> dict[str, Any]:
        """Return the public parameters; the domain as JSON."""
        return Tree.parameters(self) | {"domain": self.domain.to_json(), "delta": self.delta}

    @classmethod
    def from_parameters(cls, parameters: dict[str, Any]) -> Self:
        """Rebuild the value whose ``parameters`` were stored; the domain is JSON there."""
        domain = parameters.get("domain")
        if not isinstance(domain, str):
            raise InvalidParameter("domain must be the JSON text of a domain")
        return cls(**{**parameters, "domain": Domain.from_json(domain)})

    @property
    def width(self) -> int:
        """Return the number of cells of all tables."""
        return _ends(self.domain.sizes)[-1]

    @property
    def sensitivity(self) -> int:
        """Return the number of tables: a record adds 1 to one cell of each."""
        return len(_attributes(len(self.domain)))

    @property
    def norm_square(self) -> int:
        """Return the same."""
        return self.sensitivity

    @property
    def label(self) -> str:
        """Return the name of the estimate."""
        return "records"

    @property
    def engine(self) -> NoisyTree:
        """Return the tree of noisy sums over all cells."""
        return _engine(
            self.epsilon,
            self.sensitivity,
            self.contributions or 1,
            self.width,
            False,
            TreeShape(self.levels or 1, self.capacity or 1, one_step_ticks=False),
            self.domain.sizes,
            self.laws,
            delta=self.delta,
        )

    @property
    def laws(self) -> tuple[DiscreteLaplace | DiscreteGaussian, ...]:
        """Return the noise of a cell of each table: those of single attributes first, then of pairs in order."""
        return _laws(self.epsilon, self.delta, self.levels or 1, self.domain.sizes, self.contributions or 1)

    def read(self, values: Any) -> GridBatch:
        """Return the codes of records: a mapping of columns, a list of mappings, a table, or Records of the domain."""
        if isinstance(values, Records):
            if values.domain != self.domain:
                raise InvalidBatch("the records must have the declared domain")
            record_codes: Any = values.codes
            return GridBatch(record_codes.T)
        codes: Any = Records.read(values, self.domain).codes
        return GridBatch(codes.T, (codes,))

    def spread(self, rows: NDArray[np.int64], leaves: NDArray[np.int64]) -> None:
        """Write a 1 into the cell of every table that a record is in."""
        leaves.fill(0)
        for row in range(len(rows)):
            self.add_up(rows[row : row + 1], leaves[row])

    def add_up(self, rows: NDArray[np.int64], total: NDArray[np.int64]) -> None:
        """Add the contingency tables of all records to ``total``; the transposed copy of the codes is wiped."""
        sizes = np.array(self.domain.sizes, np.int64)
        ends = np.array([0, *_ends(self.domain.sizes)], np.int64)
        codes = np.ascontiguousarray(rows.T, np.uint16)
        for attribute, size in enumerate(self.domain.sizes):
            count(codes, np.array([attribute]), np.array([size]), total[ends[attribute] : ends[attribute + 1]])
        ones = ends[len(sizes)]
        count_pairs(codes, sizes, ends[len(sizes) :] - ones, total[ones:])
        if not np.shares_memory(codes, rows):
            wipe(codes)

    def decode(self, sums: NDArray[np.float64], variances: NDArray[np.float64], events: NDArray[np.int64]) -> Arrays:
        """Return the number of records after every slot, and its standard error."""
        weights, square = _for_records(self.domain.sizes, self.laws)
        return sums @ weights, np.sqrt(variances * square)

    def _answer(self, state: TreeState, released: tuple[int, ...]) -> Estimate:
        return self._described(self.engine.totals(state), released)

    def expected_estimate(self, ticks: int, rows: float = 0.0) -> Estimate:
        """Return the answer after ``ticks`` slots of ``rows`` records in all, with the noise at its mean."""
        return self._described(self.expected_totals(ticks, rows), ())

    def uniform_totals(self) -> NDArray[np.float64]:
        """Return the expected increment of each cell by one record with uniform values."""
        starts = [0, *_ends(self.domain.sizes)]
        return np.concatenate([np.full(b - a, 1 / (b - a)) for a, b in itertools.pairwise(starts)])

    def _described(self, totals: NDArray[np.float64], released: tuple[int, ...]) -> Estimate:
        value, error = self.decode(totals[np.newaxis, :-1], totals[-1:], np.zeros(1, np.int64))
        parts = self._parts(float(totals[-1]))

        def rule(level: float) -> tuple[float, float]:
            normal = NormalDist().inv_cdf((1 + level) / 2) * float(error[0])
            half = normal if self.delta else half_width(level, parts)
            return float(value[0]) - half, float(value[0]) + half

        return Estimate.clipped(
            float(value[0]),
            (0.0, math.inf),
            standard_error=float(error[0]),
            claim=self.claim(),
            name=self.label,
            released=released,
            interval_rule=rule,
        )

    def _parts(self, draws: float) -> list[tuple[float, DiscreteLaplace]]:
        """Return (number of draws times squared weight, distribution) of each table's Laplace noise in the answer."""
        weights = _for_records(self.domain.sizes, self.laws)[0]
        ends = _ends(self.domain.sizes)
        squares = [weights[end - 1] ** 2 * size for end, size in zip(ends, np.diff([0, *ends]), strict=True)]
        weighted_laws = zip(squares, self.laws, strict=True)
        return [(draws * float(square), noise) for square, noise in weighted_laws if isinstance(noise, DiscreteLaplace)]

    def error_bound(self, *, beta: float, ticks: int | None = None) -> float:
        """Return the error of the number of records that any single answer up to ``ticks`` exceeds with at most
        probability ``beta``.
        """
        checks.require_probability(beta=beta)
        noiseless_error = self.error_without_noise(ticks)
        if noiseless_error is not None:
            return noiseless_error
        worst = self.engine.shape(0).noise(ticks or self.last_slot).worst
        if not self.delta:
            return error_bound(beta, self._parts(worst))
        # Discrete Gaussians are sub-Gaussian (Canonne, Kamath, Steinke 2020, Corollary 17), and so are their sums.
        return math.sqrt(2 * worst * _for_records(self.domain.sizes, self.laws)[1] * math.log(2 / beta))

    def tables(self, state: TreeState) -> tuple[NoisyTable, ...]:
        """Return all tables after the last tick, from released numbers: there is no further privacy loss.

        Args:
            state: The state.
        """
        self.require_tick(state.ticks)
        sizes = self.domain.sizes
        *totals, draws = np.split(self.engine.totals(state), _ends(sizes))
        tables = []
        for attributes, counts, noise in zip(_attributes(len(sizes)), totals, self.laws, strict=True):
            shape = [sizes[attribute] for attribute in attributes]
            sigma = math.sqrt(float(draws[0]) * noise.variance)
            tables.append(NoisyTable(attributes, counts.reshape(shape), sigma, isinstance(noise, DiscreteLaplace)))
        return tuple(tables)

    def model(self, state: TreeState, rng: NoiseSource | None = None) -> LearnedNetwork:
        """Return a network fitted to the tables after the last tick: released numbers only, no further privacy loss.

        Its number of records is the estimate of that tick, rounded.

        Args:
            state: The state.
            rng: Source of the draws of the fit.
        """
        if rng is None:
            with NoiseSource() as fresh:
                return self.model(state, fresh)
        tables = self.tables(state)
        records = round(self._answer(state, ()).unclipped)
        if records < 1:
            raise InvalidParameter("the tables hold nothing but noise: wait for more records")
        network = fit_pair_model(self.domain, records, tables, rng)
        return LearnedNetwork(network, self.claim(), records, tables)

    def records_needed(self, distance: float, ticks: int | None = None) -> float:
        """Return the number of records by ``ticks`` (default: the horizon) at which noise moves the table of a pair by
        a total variation distance of ``distance``, on average over the pairs.
        """
        checks.require_positive(distance=distance)
        draws = self.engine.shape(0).noise(ticks or self.last_slot).worst
        cells = [one * other for one, other in itertools.combinations(self.domain.sizes, 2)]
        shifts = [
            size * math.sqrt(draws * noise.variance / (2 * math.pi))
            for size, noise in zip(cells, self.laws[len(self.domain) :], strict=True)
        ]
        return math.fsum(shifts) / (len(shifts) * distance)

    def merge(
        self, mine: TreeState, other: Any, theirs: TreeState, rng: NoiseSource
    ) -> tuple[StreamingTables, TreeState]:
        """Return the sum of two sites' tables; both inputs are wiped.

        Args:
            mine: State of this algorithm.
            other: The other site's algorithm.
            theirs: Its state.
            rng: Source of the noise.
        """
        if other != self:
            raise MergeError("sites must be built with the same parameters")
        if mine.ticks != theirs.ticks:
            raise MergeError("both sites must have closed the same number of slots")
        state = TreeState(
            open=mine.open + theirs.open,
            draws=mine.draws + theirs.draws,
            digits=mine.digits.copy(),
            closed=(mine.sums + theirs.sums).view(np.int64),
            ticks=mine.ticks,
            epoch=0,
            events=0,
        )
        wipe(mine.open)
        wipe(theirs.open)
        return self, state


@dataclass(frozen=True, slots=True)
class _TablesEngine(NoisyTree):
    """A tree whose columns belong to tables with different noise; variances are therefore counted in draws."""

    sizes: tuple[int, ...]
    laws: tuple[DiscreteLaplace | DiscreteGaussian, ...]

    def variance_of_draw(self, epoch: int) -> float:
        """Return 1, since the variance of a draw differs between tables; `decode` multiplies it in."""
        return 1.0

    def gaussian_losses(self) -> tuple[float, float]:
        """Return the loss of a copy with all outputs, and that of the outputs alone, as zCDP."""
        levels = self.shape(0).rows
        moves = [(law, levels * self.contributions**2) for law in self.laws if isinstance(law, DiscreteGaussian)]
        return gaussian_losses(moves, levels * self.contributions * len(moves))

    def add_noise(self, rows: NDArray[np.int64], epoch: int, rng: NoiseSource) -> None:
        """Add one draw to every cell, table by table; ``rows`` have the cells of all tables."""
        start = 0
        drawn = rng.scratch.array(rows.shape[0] * rows.shape[1], np.int64)
        for end, noise in _runs(self.sizes, self.laws):
            part = drawn[: rows.shape[0] * (end - start)]
            part.fill(0)
            if isinstance(noise, DiscreteGaussian):
                rng.add_discrete_gaussian(part, noise)
            else:
                rng.add_discrete_laplace(part, noise)
            rows[:, start:end] += part.reshape(rows.shape[0], end - start)
            start = end


_engine = lru_cache(maxsize=64)(_TablesEngine)


@lru_cache(maxsize=64)
def _attributes(count: int) -> tuple[tuple[int, ...], ...]:
    """Return the attributes of every table: single ones first, then pairs in order."""
    return tuple(itertools.chain(*(itertools.combinations(range(count), size) for size in (1, 2))))


@lru_cache(maxsize=64)
def _ends(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the end offset of each table in a row of all cells."""
    cells = [math.prod(sizes[attribute] for attribute in attributes) for attributes in _attributes(len(sizes))]
    return tuple(itertools.accumulate(cells))


@lru_cache(maxsize=64)
def _laws(
    epsilon: float, delta: float, levels: int, sizes: tuple[int, ...], contributions: int
) -> tuple[DiscreteLaplace | DiscreteGaussian, ...]:
    cells = np.diff([0, *_ends(sizes)]).tolist()
    weights = [size ** (2 / 3 if delta else 1 / 2) for size in cells]
    count = len(sizes)
    shares = split_proportionally(_ONES, weights[:count]) + split_proportionally(_PAIRS, weights[count:])
    return tables_laws(epsilon, delta, levels, shares, contributions)


@lru_cache(maxsize=64)
def _runs(
    sizes: tuple[int, ...], laws: tuple[DiscreteLaplace | DiscreteGaussian, ...]
) -> tuple[tuple[int, DiscreteLaplace | DiscreteGaussian], ...]:
    """Return (end offset, noise) of each run of neighbouring tables with the same noise, to draw it in one call."""
    both = list(zip(_ends(sizes), laws, strict=True))
    return tuple(
        current
        for current, following in itertools.zip_longest(both, both[1:])
        if following is None or following[1] != current[1]
    )


@lru_cache(maxsize=64)
def _for_records(
    sizes: tuple[int, ...], laws: tuple[DiscreteLaplace | DiscreteGaussian, ...]
) -> tuple[NDArray[np.float64], float]:
    """Return the weights of all cells in the number of records, and the variance of that sum per draw.

    The cells of each table add up to the number of records; tables are averaged with weights 1/variance.
    """
    cells = np.diff([0, *_ends(sizes)])
    variances = np.array([noise.variance for noise in laws]) * cells
    precisions = 1 / variances if variances.all() else np.ones(len(cells))
    precisions /= precisions.sum()
    weights = np.repeat(precisions, cells)
    weights.flags.writeable = False
    return weights, float(precisions**2 @ variances)
