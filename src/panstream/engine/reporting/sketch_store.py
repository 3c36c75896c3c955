"""Published sketches of a store: a list of them, and answers computed from them at no further loss."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from panstream.algorithms.distinct.sketch import Sketch
from panstream.core.estimate import Estimate
from panstream.engine.reporting.point_queries import open_release_log
from panstream.errors import InvalidParameter, UnsupportedQuery

_NAME = r"""("[^"]+"|[\w ]+?)"""
_OVERLAP = re.compile(rf"\s*SELECT\s+OVERLAP\s*\(\s*{_NAME}\s*,\s*{_NAME}\s*\)\s*;?\s*", re.IGNORECASE)
_RANGE = re.compile(
    rf"\s*SELECT\s+COUNT\s*\(\s*DISTINCT\s+\w+\s*\)\s+FROM\s+{_NAME}\s+WHERE\s+window\s+BETWEEN\s+"
    r"'(\d{4}-\d\d-\d\d)'\s+AND\s+'(\d{4}-\d\d-\d\d)'\s*;?\s*",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class StoredSketch:
    """A sketch and the name of the [[sketch]] that published it, with its group."""

    query: str
    sketch: Sketch

    @property
    def span(self) -> tuple[float, float]:
        """Return the window."""
        assert self.sketch.start is not None
        assert self.sketch.end is not None
        return self.sketch.start, self.sketch.end

    @property
    def label(self) -> str:
        """Return the name and the dates of the window."""
        return f"{self.query}, {span_text(self.span)}"


@dataclass(frozen=True, slots=True)
class SketchAnswer:
    """One line of an answer: what it is about, and the estimate."""

    label: str
    estimate: Estimate


def read_sketches(store: str | Path, query: str | None = None) -> list[StoredSketch]:
    """Return the published sketches of a store by name and time.

    Args:
        store: Directory of the store.
        query: Name of the [[sketch]]; all by default.

    Raises:
        InvalidParameter: The store has published none.
    """
    with open_release_log(store) as log:
        stored = [
            StoredSketch(release.query, Sketch.from_bytes(log.table(release.query, release.number)))
            for release in log.with_tables()
            if "sketch" in release.record and query in (None, release.query, release.asked)
        ]
    if not stored:
        raise InvalidParameter(f"no sketches were published{'' if query is None else f' by {query!r}'}")
    return sorted(stored, key=lambda one: (one.query, one.span))


def write_sketches(stored: Sequence[StoredSketch], path: Path) -> None:
    """Write sketches to a Parquet file: name, start, end, epsilon and the bytes of the sketch.

    Args:
        stored: The sketches.
        path: The file.
    """
    from pyarrow import parquet

    from panstream.engine.arrow import pa

    times = pa.timestamp("us", tz="UTC")
    spans = [[datetime.fromtimestamp(time, UTC) for time in one.span] for one in stored]
    columns = {
        "name": pa.array([one.query for one in stored]),
        "start": pa.array([start for start, _ in spans], times),
        "end": pa.array([end for _, end in spans], times),
        "epsilon": pa.array([one.sketch.epsilon for one in stored]),
        "sketch": pa.array([one.sketch.to_bytes() for one in stored], pa.binary()),
    }
    parquet.write_table(pa.table(columns), path)


def ask_sketches(store: str | Path, sql: str) -> list[SketchAnswer]:
    """Answer a SELECT from the published sketches of a store, at no further loss.

    Args:
        store: Directory of the store.
        sql: SELECT OVERLAP(a, b), for the users of two [[sketch]]es in each window that both have, or SELECT
            COUNT(DISTINCT user) FROM name WHERE window BETWEEN '2026-03-02' AND '2026-03-22', last day included.

    Raises:
        UnsupportedQuery: It is another statement.
        InvalidParameter: The store has no such sketches, or none in this range.
    """
    if (overlap := _OVERLAP.fullmatch(sql)) is not None:
        return _overlaps(store, *overlap.groups())
    if (dates := _RANGE.fullmatch(sql)) is not None:
        name, *days = dates.groups()
        try:
            first, last = (datetime.fromisoformat(day).replace(tzinfo=UTC) for day in days)
        except ValueError:
            raise UnsupportedQuery(f"{days[0]} and {days[1]} must be dates") from None
        return _range(store, name, first.timestamp(), (last + timedelta(days=1)).timestamp())
    raise UnsupportedQuery(
        "published sketches answer SELECT OVERLAP(a, b), and SELECT COUNT(DISTINCT user) FROM name "
        "WHERE window BETWEEN '2026-03-02' AND '2026-03-22'"
    )


def _of_one_series(store: str | Path, name: str) -> list[StoredSketch]:
    """Return the sketches of a name, quoted or not; raise InvalidParameter if it has several groups."""
    stored = read_sketches(store, name.strip('"'))
    series = sorted({one.query for one in stored})
    if len(series) > 1:
        raise InvalidParameter(f"{name} has groups: name one in double quotes, of {', '.join(series)}")
    return stored


def _overlaps(store: str | Path, first: str, second: str) -> list[SketchAnswer]:
    one, other = ({stored.span: stored.sketch for stored in _of_one_series(store, name)} for name in (first, second))
    spans = sorted(one.keys() & other.keys())
    if not spans:
        raise InvalidParameter(f"{first!r} and {second!r} have no window in common")
    answers = []
    for span in spans:  # of different questions, as asked: only the table must be the same
        mine, theirs = (replace(sketches[span], name="") for sketches in (one, other))
        answers.append(SketchAnswer(span_text(span), mine.intersection(theirs)))
    return answers


def _range(store: str | Path, name: str, begin: float, end: float) -> list[SketchAnswer]:
    """Return the union of the windows that make up a range; of windows inside and around it if none do."""
    if not begin < end:
        raise InvalidParameter("the first day of the range is after the last")
    stored = _of_one_series(store, name)
    inside = _chain([one for one in stored if begin <= one.span[0] and one.span[1] <= end])
    if inside and inside[0].span[0] == begin and inside[-1].span[1] == end:
        return [_union("users of the range", inside)]
    around = _chain([one for one in stored if one.span[0] < end and begin < one.span[1]])
    if not around or around[0].span[0] > begin or around[-1].span[1] < end:
        have = _chain(stored)
        raise InvalidParameter(f"the sketches of {name!r} do not reach over this range: they are of {_text_of(have)}")
    answers = [_union("at least: the windows inside the range", inside)] if inside else []
    return [*answers, _union("at most: the windows around the range", around)]


def _chain(stored: list[StoredSketch]) -> list[StoredSketch]:
    """Return the first windows in order of time, up to the first gap."""
    chain: list[StoredSketch] = []
    for one in sorted(stored, key=lambda sketch: sketch.span):
        if chain and one.span[0] != chain[-1].span[1]:
            break
        chain.append(one)
    return chain


def _union(label: str, stored: list[StoredSketch]) -> SketchAnswer:
    first, *others = (one.sketch for one in stored)
    return SketchAnswer(f"{label}, {_text_of(stored)}", first.union(*others))


def _text_of(stored: list[StoredSketch]) -> str:
    return span_text((stored[0].span[0], stored[-1].span[1]))


def span_text(span: tuple[float, float]) -> str:
    """Return the two ends of a window as dates.

    >>> span_text((1772409600.0, 1773014400.0))
    '2026-03-02 to 2026-03-09'
    """
    start, end = (datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M") for time in span)
    return f"{start.removesuffix(' 00:00')} to {end.removesuffix(' 00:00')}"
