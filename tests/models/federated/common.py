"""Small worlds for the tests of federated learning."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from panstream.errors import PeerUnreachable
from panstream.models.federated import Holder
from panstream.models.networks import Domain, Records
from panstream.primitives.noise import DiscreteGaussian, DiscreteLaplace, NoiseSource, SelectionRate

ResultT = TypeVar("ResultT")


def chain(records: int, seed: int = 1, attributes: int = 4) -> Records:
    """Each attribute copies the one before with probability 0.9; attribute i has 2 + i % 2 categories."""
    rng = np.random.default_rng(seed)
    sizes = [2 + at % 2 for at in range(attributes)]
    codes = np.empty((attributes, records), np.uint16)
    codes[0] = rng.integers(0, sizes[0], records)
    for at in range(1, attributes):
        follow = rng.random(records) < 0.9
        codes[at] = np.where(follow, codes[at - 1] % sizes[at], rng.integers(0, sizes[at], records))
    return Records(Domain({f"x{at}": [str(each) for each in range(size)] for at, size in enumerate(sizes)}), codes)


def deal(records: Records, holders: int, **options: object) -> list[Holder]:
    given = {"epsilon": math.inf, **options}
    return [Holder(f"h{at}", part, **given) for at, part in enumerate(records.split(holders))]  # type: ignore[arg-type]


def tiny_worlds(records: int, attributes: int = 2) -> Iterator[tuple[Records, Records]]:
    """All pairs of tables over binary attributes that differ in one record."""
    domain = Domain({f"x{at}": ["0", "1"] for at in range(attributes)})
    rows = list(itertools.product((0, 1), repeat=attributes))
    for rest in itertools.combinations_with_replacement(rows, records - 1):
        for one, other in itertools.permutations(rows, 2):
            yield tuple(Records(domain, np.array([*rest, each], np.uint16).T) for each in (one, other))  # type: ignore[misc]


class EnumeratingSource(NoiseSource):
    """Follows a script of outcomes and keeps the log probability of the path taken, correct to 1e-12.

    Noisy counts are enumerated over ``window``: beyond all counts that can occur likelihood ratios are constant.
    """

    __slots__ = ("log_probability", "options", "path", "window")

    is_secure = False

    def __init__(self, path: list[int], window: tuple[int, int]) -> None:
        super().__init__()
        self.path = path
        self.window = window
        self.options: list[int] = []
        self.log_probability = 0.0

    def add_discrete_laplace(self, values: NDArray[np.int64], law: DiscreteLaplace) -> None:
        low, high = self.window
        for at, exact in enumerate(values.tolist()):
            branch = self.choose(high - low + 1)
            values[at] = low + branch
            self.log_probability += math.log(math.tanh(law.kappa / 2)) - law.kappa * abs(low + branch - exact)

    def exponential(self, utilities: NDArray[np.int64], preference: SelectionRate) -> int:
        exponents = (utilities - utilities.max()) * preference.rate
        branch = self.choose(utilities.size)
        self.log_probability += float(exponents[branch]) - math.log(math.fsum(np.exp(exponents)))
        return branch

    def choose(self, options: int) -> int:
        depth = len(self.options)
        if depth == len(self.path):
            self.path.append(0)
        self.options.append(options)
        return self.path[depth]


def all_outcomes(step: Callable[[NoiseSource], ResultT], window: tuple[int, int]) -> dict[ResultT, float]:
    """Return the log probability of every outcome of a step in which each outcome has one path."""
    path: list[int] = []
    found: dict[ResultT, float] = {}
    while True:
        rng = EnumeratingSource(path, window)
        result = step(rng)
        assert result not in found
        found[result] = rng.log_probability
        while path and path[-1] + 1 == rng.options[len(path) - 1]:
            path.pop()
        if not path:
            return found
        path[-1] += 1


class RecordingSource(NoiseSource):
    """No noise, but remembers every law that was asked for."""

    __slots__ = ("laws",)

    is_secure = False

    def __init__(self, laws: list[object]) -> None:
        super().__init__()
        self.laws = laws

    def add_discrete_laplace(self, values: NDArray[np.int64], law: DiscreteLaplace) -> None:
        self.laws.append(law)

    def add_discrete_gaussian(self, values: NDArray[np.int64], law: DiscreteGaussian) -> None:
        self.laws.append(law)

    def exponential(self, utilities: NDArray[np.int64], preference: SelectionRate) -> int:
        self.laws.append(preference)
        return int(utilities.argmax())


class Flaky:
    """A channel that fails as told before it passes a question on, or spoils what comes back."""

    remote = False

    def __init__(
        self, holder: Holder, failures: int = 0, spoil: Callable[[bytes], bytes] = bytes, late: bool = False
    ) -> None:
        self.name = holder.name
        self.asked = 0
        self._holder = holder
        self._failures = failures
        self._spoil = spoil
        self._late = late

    def answer(self, data: bytes) -> bytes:
        self.asked += 1
        if self._late:  # the holder hears the question, but its answer does not arrive in time
            self._holder.answer(data)
        if self._failures > 0:
            self._failures -= 1
            raise PeerUnreachable("it did not answer within 1 s")
        return self._spoil(self._holder.answer(data))
