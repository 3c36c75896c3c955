"""Counts, sums, means, variances and quantiles at every tick, from secret-shared exact totals and a tree of noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.continual.least_squares_tree import LeastSquaresTree
from panstream.algorithms.continual.range_histogram import RangeHistogram
from panstream.algorithms.continual.tree_base import Tree, TreeBatch
from panstream.algorithms.secret_shared.running_sums import NoisyRunningSums
from panstream.algorithms.secret_shared.share_rules import Dealt
from panstream.algorithms.secret_shared.statistic import SharedStatistic
from panstream.core.estimate import Estimate, Estimates
from panstream.core.registry import find_algorithm
from panstream.errors import InvalidParameter, NotSupported
from panstream.primitives.memory.scratch import Scratch
from panstream.primitives.noise import DiscreteLaplace, NoiseSource
from panstream.privacy.claim import Claim, Intrusions
from panstream.privacy.continual_loss import tree_kappa
from panstream.privacy.secret_shared_loss import ASSUMPTION


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedContinual(SharedStatistic):
    """A statistic of the default tree (count, sum, mean, variance, quantile), with secret-shared exact totals.

    Privacy:
        As the algorithm ``statistic`` (`ContinualCount` and others), with any number of copies of one machine at a
        time. An event is in one node on each of h levels, and its loss is h·kappa.

    Error:
        Twice the variance of `LeastSquaresTree`, which assumes a trusted machine: 840 for counts over 2**16 ticks at
        epsilon 1, where one pan-private machine has 1,623.

    Args:
        statistic: Name of the algorithm whose batches it takes and whose answers it gives.
        options: That algorithm's parameters, with a horizon and without ``one_step_ticks``.
        radices: Children per node of the tree over time, from the leaves up; chosen for the
            horizon.
    """

    kind: ClassVar[str] = "summed"

    statistic: str
    options: dict[str, Any]
    radices: tuple[int, ...] = ()
    reader: Tree = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        reader = find_algorithm(self.statistic)(**self.options)
        if not isinstance(reader, Tree) or reader.horizon is None or reader.one_step_ticks or reader.counts_events:
            raise InvalidParameter(
                f"{self.statistic} is no statistic of a tree with a horizon and add-remove adjacency"
            )
        if reader.delta:
            raise InvalidParameter("delta is for one machine: what two machines add up has Laplace noise")
        object.__setattr__(self, "reader", reader)
        plain = LeastSquaresTree(epsilon=1.0, horizon=reader.horizon, radices=tuple(self.radices))
        object.__setattr__(self, "radices", plain.radices)
        _ = self.rule

    @classmethod
    def of(cls, algorithm: Tree) -> SharedContinual:
        """Return the statistic with the answers of a one-machine algorithm."""
        options = {
            name: value
            for name, value in algorithm.parameters().items()
            if name not in ("levels", "capacity") and value is not None
        }
        return cls(statistic=type(algorithm).__name__, options=options)

    @property
    def horizon(self) -> int:
        """Return the largest number of ticks."""
        assert self.reader.horizon is not None
        return self.reader.horizon

    @property
    def law(self) -> DiscreteLaplace:
        """Return the distribution of each machine's draws."""
        reader = self.reader
        kappa = tree_kappa(reader.epsilon, len(self.radices), reader.sensitivity, reader.contributions or 1)
        return DiscreteLaplace.at_most(kappa)

    def claim(self) -> Claim:
        """Return the algorithm's claim, for any number of copies of one machine at a time."""
        return replace(
            self.reader.claim(),
            intrusions=Intrusions(unannounced=-1, machines=2),
            assumption=ASSUMPTION,
            public=("how many slots were closed, and in how many steps",),
        )

    @property
    def rule(self) -> NoisyRunningSums:
        """Return the rule of totals with a tree of noise."""
        return NoisyRunningSums(width=self.reader.width, radices=self.radices, noise=self.law, releases=self.horizon)

    def batch(self, values: Any, *, users: Any = None) -> TreeBatch:
        """Check events of the open slot, as on one machine."""
        return self.reader.batch(values, users=users)

    def empty_buffer(self) -> Dealt:
        """Return the sum of the rows of one step, all 0."""
        return (np.zeros(self.reader.width, np.int64),)

    def accumulate(self, change: Dealt, batch: TreeBatch, scratch: Scratch) -> None:
        """Add the batch's total."""
        change[0][:] += batch.total

    def to_dense_update(self, change: Dealt, rng: NoiseSource, *, fresh: bool = False) -> Dealt:
        """Return the buffer unchanged: the rule deals sums."""
        return change

    def estimate(self, opened: Sequence[int], number: int) -> Estimate:
        """Return the answer after ``number`` ticks."""
        return self._answer(self.totals(opened, number), tuple(opened), number)

    def totals(self, opened: Sequence[int], number: int) -> NDArray[np.float64]:
        """Return the noisy totals after ``number`` ticks, and their variance last."""
        unit = 1 << self.rule.unit
        return np.array([*(opened_total / unit for opened_total in opened), self.variance_at(number)])

    def variance_at(self, ticks: int) -> float:
        """Return the variance of a total after ``ticks`` slots, of both machines' noise."""
        return 2 * self.rule.variance(ticks) * self.law.variance

    def at(self, state: tuple[Sequence[int], int], what: Any) -> Estimate:
        """Return another statistic from the numbers of the last answer and the number of ticks."""
        return self.from_totals(self.totals(*state), what)

    def from_totals(self, total: NDArray[np.float64], what: Any) -> Estimate:
        """Return another statistic from the same totals; raise NotSupported if the algorithm has none."""
        if not hasattr(self.reader, "from_totals"):
            raise NotSupported(f"{self.statistic} has no {what}")
        estimate: Estimate = self.reader.from_totals(total, what, self.law)
        return replace(estimate, claim=self.claim())

    def _answer(self, total: NDArray[np.float64], released: tuple[int, ...], slots: int) -> Estimate:
        reader = self.reader
        if isinstance(reader, RangeHistogram):
            return replace(self.from_totals(total, reader.quantile), released=released)
        value, error = reader.decode(total[np.newaxis, :-1], total[-1:], np.zeros(1, np.int64))
        estimate = reader.describe(float(value[0]), float(error[0]), self.law, released, slots)
        return replace(estimate, claim=self.claim())

    def expected_estimate(self, ticks: int, rows: float = 0.0) -> Estimate:
        """Return the answer after ``ticks`` slots if ``rows`` values were uniform and all draws were 0."""
        return self._answer(self.expected_totals(ticks, rows), (), ticks)

    def expected_totals(self, ticks: int, rows: float) -> NDArray[np.float64]:
        """Return the totals for that case, and their variance last."""
        return np.append(rows * self.reader.uniform_totals(), self.variance_at(ticks))

    def tick(self, state: Any, rng: Any) -> Estimate:
        """Raise NotSupported: a slot is closed by a step of both machines."""
        return self.start()  # type: ignore[no-any-return]

    def tick_many(self, state: Any, values: Any, rng: Any) -> Estimates:
        """Raise NotSupported: a slot is closed by a step of both machines."""
        return self.start()  # type: ignore[no-any-return]
