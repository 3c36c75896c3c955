"""Public edges that turn numbers and dates into categories, and categories into numbers and dates again.

Besides the edges there are three options. *Atoms* are single values that many records have, such as 0 in a column of
amounts: each is a category of its own and is sampled exactly. A *tail* is the upper limit of samples from an open last
bin. *Dates* are counted in days, so bins of dates are bins of integers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from panstream.errors import InvalidParameter

Within: TypeAlias = tuple[float, float]
"""A range that sampled numbers are restricted to, both ends included."""

EVERYWHERE: Within = (-math.inf, math.inf)


@dataclass(frozen=True, slots=True, init=False)
class Bins:
    """Public edges of a numeric column: ``edges[i] <= x < edges[i + 1]``, the last bin closed.

    A value beyond the edges is rejected (or counts as missing where that is declared) unless ``clip`` puts it into the
    nearest bin. The outer edges may be infinite; ``tail`` is then the upper limit of samples from the last bin.
    ``whole`` declares integer values, ``dates`` that the edges are dates. ``atoms`` are values with a category of their
    own, after those of the bins.

    Args:
        edges: Edges in ascending order; numbers, or dates as text.
        clip: Put values beyond the outer edges into the nearest bin instead of rejecting them.
        whole: Values are integers.
        atoms: Values with a category of their own.
        tail: Upper limit of samples from the last bin, if that has no upper edge.
        dates: Edges are dates.

    >>> ages = Bins([0, 18, 65, 120])
    >>> ages.labels
    ('[0, 18)', '[18, 65)', '[65, 120]')
    >>> Bins([0, 100, float("inf")], atoms=[0], tail=10_000).labels
    ('[0, 100)', '[100, inf]', '0')
    >>> Bins(["2024-01-01", "2024-07-01", "2024-12-31"], dates=True).labels
    ('[2024-01-01, 2024-07-01)', '[2024-07-01, 2024-12-31]')
    """

    edges: tuple[float, ...]
    clip: bool
    whole: bool
    atoms: tuple[float, ...]
    tail: float | None
    dates: bool

    def __init__(
        self,
        edges: Iterable[Any],
        *,
        clip: bool = False,
        whole: bool = False,
        atoms: Iterable[float] = (),
        tail: float | None = None,
        dates: bool = False,
    ) -> None:
        values = tuple(map(_day, edges)) if dates else tuple(float(edge) for edge in edges)
        if len(values) < 2:
            raise InvalidParameter(f"edges must hold at least two numbers, got {len(values)}")
        if not all(low < high for low, high in itertools.pairwise(values)):
            raise InvalidParameter("edges must increase strictly, and none may be NaN")
        single = tuple(float(atom) for atom in atoms)
        if not all(map(math.isfinite, single)) or not all(low < high for low, high in itertools.pairwise(single)):
            raise InvalidParameter("atoms must be finite numbers that increase strictly")
        if dates and (single or not all(map(math.isfinite, values))):
            raise InvalidParameter("bins of dates must have finite edges and no atoms")
        if tail is not None and not (math.isinf(values[-1]) and values[-2] < tail < math.inf):
            raise InvalidParameter("tail must be a number above the last finite edge, and the last edge must be inf")
        self._set("edges", values)
        self._set("clip", bool(clip))
        self._set("whole", bool(whole) or bool(dates))
        self._set("atoms", single)
        self._set("tail", None if tail is None else float(tail))
        self._set("dates", bool(dates))

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    @property
    def count(self) -> int:
        """Return the number of bins, atoms not included."""
        return len(self.edges) - 1

    @property
    def labels(self) -> tuple[str, ...]:
        """Return the bins as intervals, then the atoms as numbers."""
        ends = [")"] * (self.count - 1) + ["]"]
        pairs = zip(itertools.pairwise(map(self._text, self.edges)), ends, strict=True)
        return (*(f"[{low}, {high}{end}" for (low, high), end in pairs), *(f"{atom:.12g}" for atom in self.atoms))

    def _text(self, number: float) -> str:
        return date.fromordinal(int(number)).isoformat() if self.dates else f"{number:.12g}"

    def number(self, value: Any) -> float:
        """Return a value as a number, a date as its proleptic ordinal; raise ValueError for anything else.

        Args:
            value: A number, or a date as text.
        """
        return _day(value) if self.dates else float(value)

    def codes(self, values: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the category of each number; -1 for NaN and, without ``clip``, for numbers beyond the edges.

        Args:
            values: The numbers.
        """
        edges = np.asarray(self.edges)
        codes = np.searchsorted(edges, values, side="right").astype(np.int64) - 1
        last = self.count - 1
        codes[values == edges[-1]] = last
        if self.clip:
            np.clip(codes, 0, last, out=codes)
        else:
            codes[codes > last] = -1
        codes[np.isnan(values)] = -1
        for code, atom in enumerate(self.atoms, self.count):
            codes[values == atom] = code
        return codes

    def sample_values(self, codes: NDArray[Any], shares: NDArray[np.float64], within: Within = EVERYWHERE) -> list[Any]:
        """Return a value for each code: the atom, or the number (or day) at ``shares``, uniform in [0, 1), of the bin.

        A bin without end is sampled log-uniformly up to the tail, or gives its finite edge. Codes of neither a bin nor
        an atom give None.

        Args:
            codes: The categories.
            within: A range that the values must lie in, if there is one.
            shares: For each value a number from 0 up to 1, the part of the bin below it.
        """
        low, high = (np.array([self._ends(code, within)[side] for code in range(self.count)]) for side in (0, 1))
        code = np.minimum(np.asarray(codes, np.int64), self.count - 1)
        low = low[code]
        high = high[code]
        if self.whole:
            values = np.minimum(low + np.floor(shares * (high - low + 1)), high)
        else:
            values = low + shares * (high - low)
        if self.tail is not None and self.edges[-2] > 0:
            steep = code == self.count - 1
            values[steep] = low[steep] * (high[steep] / low[steep]) ** shares[steep]
            values = np.where(steep & self.whole, np.floor(values), values)
        texts = [self._format_value(value) for value in values.tolist()]
        if len(codes) and int(np.max(codes)) >= self.count:
            extra = [self._format_value(atom) for atom in self.atoms]
            for row in np.flatnonzero(np.asarray(codes) >= self.count).tolist():
                atom_index = int(codes[row]) - self.count
                texts[row] = extra[atom_index] if atom_index < len(extra) else None
        return texts

    def _format_value(self, value: float) -> Any:
        if self.dates:
            return date.fromordinal(int(value)).isoformat()
        return int(value) if self.whole and value.is_integer() else value

    def _ends(self, code: int, within: Within) -> Within:
        """Return the smallest and largest value that a bin is sampled from; integers if the values are integers."""
        low = self.edges[code]
        high = self.edges[code + 1]
        if math.isinf(high):
            high = self.tail if self.tail is not None else low
        if math.isinf(low):
            low = high
        if math.isinf(low):  # one bin for everything
            low = high = 0.0
        if self.whole:
            low = math.ceil(low)
            high = max(math.ceil(high) - 1 if code < self.count - 1 else math.floor(high), low)
        return max(low, within[0]), min(high, within[1])

    def covered(self, within: Within) -> NDArray[np.float64]:
        """Return the fraction of each category, bins and then atoms, that lies in a range.

        Args:
            within: The range.
        """
        parts = []
        for code in range(self.count):
            whole_low, whole_high = self._ends(code, EVERYWHERE)
            low, high = self._ends(code, within)
            if self.whole:
                part = max(math.floor(high) - math.ceil(low) + 1, 0) / (whole_high - whole_low + 1)
            elif whole_low == whole_high:
                part = float(low <= high)
            elif code == self.count - 1 and self.tail is not None and whole_low > 0:
                part = math.log(high / low) / math.log(whole_high / whole_low) if low < high else 0.0
            else:
                part = max(high - low, 0.0) / (whole_high - whole_low)
            parts.append(part)
        return np.array([*parts, *(float(within[0] <= atom <= within[1]) for atom in self.atoms)])


def _day(value: Any) -> float:
    """Return the proleptic ordinal of a date; text is read as ISO 8601, a time of day is ignored."""
    if isinstance(value, np.datetime64):
        value = value.astype("datetime64[D]").item()
    if isinstance(value, str):
        try:
            value = date.fromisoformat(value.strip()[:10])
        except ValueError:
            raise InvalidParameter("a date must be written as YYYY-MM-DD") from None
    if isinstance(value, datetime):
        value = value.date()
    if isinstance(value, date):
        return float(value.toordinal())
    raise InvalidParameter("a date must be a date, or text as YYYY-MM-DD")


_MONTHS = {"month": 1, "quarter": 3, "year": 12}
_DAYS = {"day": 1, "week": 7}


def date_edges(minimum: Any, maximum: Any, step: str) -> list[date]:
    """Return the edges of bins of days, weeks or months: the first days from ``minimum`` on, then ``maximum``.

    >>> [str(day) for day in date_edges("2024-01-15", "2024-03-31", "month")]
    ['2024-01-15', '2024-02-01', '2024-03-01', '2024-03-31']
    """
    first, last = (date.fromordinal(int(_day(bound))) for bound in (minimum, maximum))
    if step not in (*_DAYS, *_MONTHS):
        raise InvalidParameter(f"step must be {', '.join((*_DAYS, *_MONTHS))}, got step={step!r}")
    starts = []
    day = first
    while day < last:
        starts.append(day)
        if step in _DAYS:
            day = date.fromordinal(day.toordinal() + _DAYS[step])
        else:
            months = _MONTHS[step]
            number = (day.year * 12 + day.month - 1) // months * months + months
            day = date(number // 12, number % 12 + 1, 1)
    return [*starts, last]
