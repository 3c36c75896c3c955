"""Statistics that choose, size and explain the algorithm with the smallest error."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, TypeVar

from panstream.algorithms.continual_users.continual_bitmap import ContinualBitmap
from panstream.algorithms.continual_users.continual_density import ContinualDensity
from panstream.algorithms.density.optbern import OptBern
from panstream.algorithms.density.universe import as_members
from panstream.algorithms.distinct.bitmap import Bitmap
from panstream.algorithms.heavy_hitters.prefix_sketch import FrequentItems
from panstream.algorithms.heavy_hitters.released_tables import CELLS_PER_NAME, MAX_LISTED_NAMES
from panstream.algorithms.heavy_hitters.short_names import short_names_text
from panstream.core.auto_algorithm import AutoAlgorithm
from panstream.core.estimate import format_number
from panstream.errors import InvalidParameter
from panstream.primitives.hashing import MAX_LEVELS, StringHash
from panstream.privacy.bitmap_loss import reference_users

_DEFAULT_MEMORY = 1 << 23  # bytes
_MIN_BUCKETS = 64  # with fewer the counts of a level are too small for a normal approximation
_DEFAULT_BUCKETS = 4096
_TOLERATED_ERROR = 1.05  # times the smallest: a twentieth more error often halves the cells, which every commit writes
_MAX_USERS = 1 << 32  # without a universe
_MIN_MEMORY = 256  # bytes
_MAX_CELLS_PER_USER = 32  # of a bitmap whose start is released; more hardly help
_LARGE_COUNT = 1e7  # for which the error that ``expected`` would bring is stated where it was not given

_BITMAPS = (Bitmap, ContinualBitmap)
DistinctAlgorithm = Bitmap | OptBern | ContinualDensity | ContinualBitmap


@dataclass(frozen=True, slots=True)
class DistinctCount(AutoAlgorithm):
    """How many distinct users appeared? Picks a bitmap or one bit per user, sizes it, and explains the choice.

    One bit per user has nearly the same absolute error for any number of users; a bitmap's error grows with their
    number. So bits are better when a large part of a known population appears, and a bitmap below that and for an open
    universe. If ``expected`` is given and there is one answer, the number of ones before the first row is released too:
    the noise of untouched bits then cancels, which makes the error about 1.4 times smaller in a bitmap, and bits are
    better from a few percent on. A bitmap has a row of cells for every doubling of the count; if ``at_most`` excludes
    large counts, one row of many cells is better, and the error another 1.3 times smaller. The choice is made by the
    error formulas, not by these rules.

    Privacy:
        Unit: user; exactly ``epsilon`` for the joint view of one copy of the state at any time and of all releases.

    Args:
        epsilon: Total privacy loss.
        universe: Number of users (ids 0..U-1), or the public list of their ids, if the
            population is known.
        expected: About how many will come. If only the universe is given, all of it is
            expected.
        at_most: The largest number that may come; the universe or 2**32 by default. Far more users fill all cells, and
            then the interval has no upper end.
        memory: Bytes that the cells may take, eight cells each, in memory and when stored; 8
            MiB by default. Each announced intrusion adds another copy of them, which is
            included.
        releases: How many answers there will be.
        announced: How many announced intrusions to pay for in advance.
        key: Public number that chooses the sample or the hash function.
        hash: Hash of strings: "fold" or, at half the speed, "siphash", which withstands chosen
            ids if `key` is secret.
        mergeable: Whether the state will be merged with others, divided among machines, or go on after its answer.
            Then the start is not released.

    Examples:
        >>> question = DistinctCount(1.0, expected=20_000)
        >>> monitor = question.start()
        >>> monitor.update([f"user {i}" for i in range(20_000)])
        >>> abs(monitor.release().value / 20_000 - 1) < 0.2
        True
    """

    epsilon: float
    _: KW_ONLY
    universe: int | tuple[Any, ...] | None = None
    expected: float | None = None
    memory: int | None = None
    releases: int = 1
    announced: int = 0
    key: int = 0
    hash: StringHash = "fold"
    at_most: float | None = None
    mergeable: bool = False
    choice: _Choice = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "universe", as_members(self.universe))
        min_memory = _MIN_MEMORY * (self.announced + 1)
        if self.memory is not None and self.memory < min_memory:
            raise InvalidParameter(f"memory must be at least {min_memory} bytes, got memory={self.memory}")
        if self.expected is not None and not 0 < self.expected < math.inf:
            raise InvalidParameter(f"expected must be a positive number of users, got expected={self.expected}")
        if self.at_most is not None and not (self.expected or 1) <= self.at_most < math.inf:
            raise InvalidParameter(f"at_most must be at least expected={self.expected}, got at_most={self.at_most}")
        object.__setattr__(self, "choice", _choose(self))

    @property
    def algorithm(self) -> DistinctAlgorithm:
        """Return the chosen algorithm with its parameters."""
        return self.choice.algorithm

    def explain(self) -> str:
        """Return which algorithm was chosen, its expected error, and what was rejected."""
        choice = self.choice
        lines = [f"Chosen: {_described(choice.algorithm)}, {choice.reach()}."]
        if choice.rejected is not None:
            lines.append(f"Rejected: {_described(choice.rejected.algorithm)}, {choice.rejected.reach()}.")
            bits, bitmap = sorted(
                (choice, choice.rejected), key=lambda candidate: isinstance(candidate.algorithm, _BITMAPS)
            )
            if isinstance(bits.algorithm, OptBern) and bits.algorithm.sample is None:
                # The error of bits is constant and that of the best bitmap grows like the square root of the count.
                even = choice.users * (bits.error / bitmap.error) ** 2
                lines.append(f"Bits win above about {even:,.0f} users, a bitmap below.")
        if self.universe is None:
            lines.append("No universe was given, so ids of any kind are hashed to the cells of a bitmap.")
        if self.expected is None:
            fact = "a large count was" if self.universe is None else "all users of the universe were"
            lines.append(f"No expected= was given, so {fact} expected: set it for a better fit.{self._lost_accuracy()}")
        return "\n".join(lines)

    def _lost_accuracy(self) -> str:
        """Return a sentence on the error that ``expected`` would bring for a large count, if nothing is known."""
        algorithm = self.choice.algorithm
        if self.universe is not None or self.at_most is not None or not isinstance(algorithm, Bitmap):
            return ""
        better = replace(self, expected=_LARGE_COUNT).choice.error / _LARGE_COUNT
        many = f"{_LARGE_COUNT:,.0f} users"
        usual = f" If there are {many}, the error is {algorithm.relative_error(_LARGE_COUNT):.2%}"
        return f"{usual}; with expected={_LARGE_COUNT:,.0f} it would be {better:.2%}."


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    algorithm: DistinctAlgorithm
    users: float
    error: float
    rejected: _Choice | None = None

    def reach(self) -> str:
        return f"standard error {self.error:,.0f} ({self.error / self.users:.2%}) at {self.users:,.0f} users"


def _choose(question: DistinctCount) -> _Choice:
    bits = None if question.universe is None else _sized_bits(question)
    max_users = _MAX_USERS if bits is None else bits.population.size
    if question.expected is not None and question.expected > max_users:
        raise InvalidParameter(f"expected must not exceed {max_users} users, got expected={question.expected}")
    max_users = min(max_users, math.ceil(question.at_most or max_users))
    planned = question.expected or (None if bits is None else bits.population.size)
    bitmap = _sized_bitmap(question, planned, max_users)
    users = planned or reference_users(bitmap.buckets, bitmap.levels)
    hashed = _Choice(algorithm=bitmap, users=users, error=users * bitmap.relative_error(users))
    started = _bitmap_with_released_start(question, max_users)
    if started is not None and users * started.relative_error(users) < hashed.error:
        hashed = _Choice(algorithm=started, users=users, error=users * started.relative_error(users))
    if bits is None:
        return hashed
    cells = _with_released_start(question, bits) or bits
    per_user = _Choice(algorithm=cells, users=users, error=cells.standard_error(users))
    best, other = (per_user, hashed) if per_user.error <= hashed.error else (hashed, per_user)
    return replace(best, rejected=other)


def _common_options(question: DistinctCount) -> dict[str, Any]:
    return {name: getattr(question, name) for name in ("epsilon", "releases", "announced", "key")}


def _cells(question: DistinctCount) -> int:
    """Return how many cells fit into memory, with a copy for every announced intrusion."""
    return 8 * ((question.memory or _DEFAULT_MEMORY) // max(question.announced + 1, 1))


def _sized_bits(question: DistinctCount) -> OptBern:
    """Return one bit per user, or for as many users as memory allows."""
    universe = question.universe if question.universe is not None else 1
    everyone = OptBern(count=True, universe=universe, **_common_options(question))
    cells = _cells(question)
    return everyone if everyone.population.size <= cells else replace(everyone, sample=cells)


def _with_released_start(question: DistinctCount, bits: OptBern) -> ContinualDensity | None:
    """Return the same bits with the start released too, if there is a single answer of an expected size."""
    if not _releases_start(question):
        return None
    return ContinualDensity(
        universe=bits.universe,
        epsilon=question.epsilon,
        horizon=1,
        unit="user",
        expected=question.expected,
        sample=bits.sample,
        key=question.key,
        count=True,
    )


def _releases_start(question: DistinctCount) -> bool:
    """Return whether there is a single answer of an expected size, after which the state is not used any more."""
    single = question.releases == 1 and not question.announced and not question.mergeable
    return single and question.expected is not None and math.isfinite(question.epsilon)


def _sized_bitmap(question: DistinctCount, users: float | None, max_users: int) -> Bitmap:
    """Return the smallest bitmap in memory that is close to the best at ``users``, with levels for ``max_users``."""
    fitting = [
        Bitmap(buckets=buckets, levels=levels, expected=users, hash=question.hash, **_common_options(question))
        for buckets, levels in _layouts(question, max_users)
        if buckets * levels <= _cells(question)
    ]
    if users is None:
        return [bitmap for bitmap in fitting if bitmap.buckets <= _DEFAULT_BUCKETS][-1]
    return _smallest_good(fitting, users, max_users)


def _bitmap_with_released_start(question: DistinctCount, max_users: int) -> ContinualBitmap | None:
    """Return the same kind of bitmap with the start released too, if there is a single answer of an expected size."""
    if question.expected is None or not _releases_start(question):
        return None
    fitting = [
        ContinualBitmap(
            epsilon=question.epsilon,
            horizon=1,
            unit="user",
            method="paid",  # of one answer a tree has nothing to add up
            expected=question.expected,
            buckets=buckets,
            rows_of_cells=levels,
            key=question.key,
            hash=question.hash,
        )
        for buckets, levels in _layouts(question, max_users)
        if buckets * levels <= _cells(question) and buckets <= _MAX_CELLS_PER_USER * question.expected + _MIN_BUCKETS
    ]
    return _smallest_good(fitting, question.expected, max_users)


_BitmapT = TypeVar("_BitmapT", Bitmap, ContinualBitmap)


def _smallest_good(bitmaps: list[_BitmapT], users: float, max_users: int) -> _BitmapT:
    """Return the smallest bitmap close to the best at ``users`` whose relative error is not larger at ``max_users``."""
    errors = [(bitmap, bitmap.relative_error(users)) for bitmap in bitmaps]
    usable = [
        (bitmap, error)
        for bitmap, error in errors
        if bitmap.table.levels > 1 or bitmap.relative_error(max_users) <= error
    ]
    tolerated = _TOLERATED_ERROR * min(error for _, error in usable)
    good = [bitmap for bitmap, error in usable if error <= tolerated]
    return min(good, key=lambda bitmap: bitmap.table.cells)


def _layouts(question: DistinctCount, max_users: int) -> list[tuple[int, int]]:
    """Return buckets and levels to try: with levels for ``max_users``, and with one if a bound was declared."""
    sizes = [_MIN_BUCKETS << power for power in range(20)]
    leveled = [(buckets, _levels(buckets, max_users)) for buckets in sizes]
    return leveled + ([(buckets, 1) for buckets in sizes] if question.at_most is not None else [])


def _levels(buckets: int, max_users: int) -> int:
    """Return the number of levels with which ``max_users`` users occupy an eighth of the last level's cells."""
    return min(max(math.ceil(math.log2(max_users / buckets)) + 4, 4), MAX_LEVELS)


def _described(algorithm: DistinctAlgorithm) -> str:
    memory_text = f"({_bytes(algorithm):,} bytes)"
    started = not isinstance(algorithm, Bitmap | OptBern) and algorithm.strategy.start
    also = ", and the start released once" if started else ""
    if isinstance(algorithm, _BITMAPS):
        levels = algorithm.table.levels
        size = f"{algorithm.buckets:,} buckets x {levels} level{'' if levels == 1 else 's'}"
        return f"a bitmap of {size} {memory_text}{also}"
    if algorithm.sample is None:
        return f"one bit for each of {algorithm.population.size:,} users {memory_text}{also}"
    sampled = f"{algorithm.sample:,} sampled users out of {algorithm.population.size:,}"
    return f"one bit for each of {sampled} {memory_text}{also}"


def _bytes(algorithm: DistinctAlgorithm) -> int:
    """Return the bytes of the cells, eight to a byte, after all announced intrusions that the claim covers."""
    cells = algorithm.cells if isinstance(algorithm, OptBern) else algorithm.table.cells
    announced = algorithm.announced if isinstance(algorithm, Bitmap | OptBern) else 0
    return (cells + 7) // 8 * (announced + 1)


_DEFAULT_EVENTS = 1_000_000.0
_NAMES_MEMORY = 48 << 20  # bytes
_WIDTHS = (1 << 10, 1 << 15, 1 << 24)  # of a level: smallest, smallest if memory allows it, largest
_ROW_WIDTHS = (1 << 12, 1 << 17, 1 << 19)  # the same for a count row


@dataclass(frozen=True, slots=True)
class TopItems(AutoAlgorithm):
    """Which names are most frequent, and how frequent? The names need not be known beforehand.

    Sizes the tables of `FrequentItems` for the expected number of events, and explains from how many events on a name
    is listed.

    Privacy:
        Unit: one event, or a user of at most ``contributions`` events; one copy of the state at any time and all
        releases lose ``epsilon`` and ``delta`` together.

    Args:
        epsilon: Total privacy loss.
        delta: 0 for pure epsilon: names must then be about ``max_item_bytes``/8 times as frequent to
            be listed.
        max_item_bytes: Longest name in bytes, 64 by default; a shorter limit finds less frequent
            names.
        expected: About how many events there are per answer.
        memory: Bytes that the tables may take, 48 MiB by default.
        releases: How many answers there will be.
        contributions: Protect a user with at most this many rows instead of one event.
        key: Public number that chooses the hash functions.

    Examples:
        >>> question = TopItems(1.0, delta=1e-6, max_item_bytes=24, expected=100_000)
        >>> monitor = question.start()
        >>> monitor.update(["/"] * 5_000 + ["/about"] * 2_000)
        >>> [item.name for item in monitor.release().top(2)]
        ['/', '/about']
    """

    epsilon: float
    _: KW_ONLY
    delta: float = 0.0
    max_item_bytes: int = 64
    expected: float = _DEFAULT_EVENTS
    memory: int = _NAMES_MEMORY
    releases: int = 1
    contributions: int | None = None
    key: int = 0
    algorithm: FrequentItems = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not 0 < self.expected < math.inf:
            raise InvalidParameter(f"expected must be a positive number of events, got expected={self.expected}")
        object.__setattr__(self, "algorithm", self._sized())

    def _sized(self) -> FrequentItems:
        smallest = FrequentItems(
            epsilon=self.epsilon,
            delta=self.delta,
            max_item_bytes=self.max_item_bytes,
            step=4 if self.delta else 8,
            width=_WIDTHS[0],
            row_width=_ROW_WIDTHS[0],
            releases=self.releases,
            contributions=self.contributions,
            key=self.key,
            repeats=4,
        )
        heavy = self.expected / smallest.listing_threshold
        width = _next_power_of_two(CELLS_PER_NAME * min(heavy, MAX_LISTED_NAMES), *_WIDTHS[1:])
        row_width = _next_power_of_two(1.5 * CELLS_PER_NAME * heavy, *_ROW_WIDTHS[1:])
        while 4 * (smallest.levels * width + smallest.rows * row_width) > self.memory:
            if width <= _WIDTHS[0] and row_width <= _ROW_WIDTHS[0]:
                min_memory = 4 * (smallest.levels * width + smallest.rows * row_width)
                raise InvalidParameter(f"memory must be at least {min_memory} bytes, got memory={self.memory}")
            if row_width > _ROW_WIDTHS[0] and smallest.rows * row_width > smallest.levels * width // 2:
                row_width //= 2
            else:
                width = max(width // 2, _WIDTHS[0])
                row_width = row_width // 2 if width == _WIDTHS[0] else row_width
        return replace(smallest, width=width, row_width=max(row_width, _ROW_WIDTHS[0]))

    @property
    def listing_threshold(self) -> float:
        """Return how many events a name needs to be listed with probability 95%; more if memory is short of cells."""
        return self.algorithm.listing_threshold_among(self.expected)

    def explain(self) -> str:
        """Return the listing threshold, the size of the tables, and the error that declared keys would have."""
        algorithm = self.algorithm
        size = 4 * (algorithm.levels * algorithm.width + algorithm.rows * algorithm.row_width)
        count_error = math.sqrt(2 * algorithm.laws[1].variance / algorithm.rows)
        lines = [
            f"Names with at least {format_number(self.listing_threshold)} events are listed with probability 95%; a "
            f"listed count has a standard error of about {format_number(count_error)}.",
            f"Tables of {algorithm.levels} x {algorithm.width:,} and {algorithm.rows} x {algorithm.row_width:,} cells "
            f"({size:,} bytes), discrete {'Gaussian' if self.delta else 'Laplace'} noise.",
            f"Where the keys are known, listing them is better: counts of listed keys have a standard error of about "
            f"{format_number(2 * (self.contributions or 1) / self.epsilon)}, and none is missed.",
        ]
        if self.listing_threshold > algorithm.listing_threshold * 1.001:
            lines.append(f"With more memory it would be {format_number(algorithm.listing_threshold)} events.")
        if (short := short_names_text(algorithm)) is not None:
            lines.append(f"Shorter names need fewer: {short}.")
        lines += ["A smaller max_item_bytes= finds rarer names."] * (self.max_item_bytes > 16)
        return "\n".join(lines)


def _next_power_of_two(min_value: float, low: int, high: int) -> int:
    """Return the smallest power of two that is at least ``min_value``, between ``low`` and ``high``."""
    return int(min(max(1 << max(math.ceil(min_value) - 1, 0).bit_length(), low), high))
