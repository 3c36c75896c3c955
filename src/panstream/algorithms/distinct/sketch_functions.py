"""Counts, overlaps and unions of columns of published sketches, for pandas, DuckDB and Spark.

A column holds the bytes of `Sketch.to_bytes`, as ``panstream sketch export --parquet`` writes them. Every function
returns the number and the ends of its 95% interval; computing it costs nothing further.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from panstream.core.estimate import Estimate

__all__ = ["register_duckdb", "register_spark", "sketch_count", "sketch_overlap", "sketch_union"]

_FIGURES = ("value", "low", "high")


def sketch_count(sketch: bytes) -> dict[str, float]:
    """Return how many users a window had: value, low and high.

    Args:
        sketch: The bytes of a published sketch.
    """
    return _figures(_read(sketch).count())


def sketch_overlap(first: bytes, second: bytes) -> dict[str, float]:
    """Return how many users came in both windows: value, low and high.

    Args:
        first: The bytes of a published sketch.
        second: Those of another one, of the same question.
    """
    return _figures(_read(first).intersection(_read(second)))


def sketch_union(sketches: Iterable[bytes]) -> dict[str, float]:
    """Return how many users came in any of the windows: value, low and high.

    Args:
        sketches: The bytes of published sketches of one question.

    Raises:
        InvalidParameter: There are none.
    """
    from panstream.errors import InvalidParameter

    read = [_read(sketch) for sketch in sketches]
    if not read:
        raise InvalidParameter("sketch_union needs at least one sketch")
    return _figures(read[0].union(*read[1:]))


def register_duckdb(connection: Any) -> None:
    """Add ``sketch_count``, ``sketch_overlap`` and ``sketch_union`` to the SQL of a DuckDB connection.

    ``sketch_union`` takes a list: ``sketch_union(list(sketch))``.

    Args:
        connection: A DuckDB connection.
    """
    figures = "STRUCT(value DOUBLE, low DOUBLE, high DOUBLE)"
    for function, kinds in (
        (sketch_count, ["BLOB"]),
        (sketch_overlap, ["BLOB", "BLOB"]),
        (sketch_union, ["BLOB[]"]),
    ):
        connection.create_function(function.__name__, function, kinds, figures)


def register_spark(session: Any) -> None:
    """Add the three functions to the SQL of a Spark session; ``sketch_union`` takes ``collect_list(sketch)``.

    Args:
        session: A Spark session.
    """
    figures = ", ".join(f"{name} DOUBLE" for name in _FIGURES)
    for function in (sketch_count, sketch_overlap, sketch_union):
        session.udf.register(
            function.__name__, _on_spark(function), f"STRUCT<{figures}>".replace(" DOUBLE", ": DOUBLE")
        )


def _on_spark(function: Any) -> Any:
    """Return the function with the bytearrays of Spark turned into bytes."""

    def call(*values: Any) -> dict[str, float]:
        plain = [list(map(bytes, value)) if isinstance(value, list) else bytes(value) for value in values]
        figures: dict[str, float] = function(*plain)
        return figures

    return call


def _read(sketch: bytes) -> Any:
    from panstream.algorithms.distinct.sketch import Sketch

    return Sketch.from_bytes(bytes(sketch))


def _figures(estimate: Estimate) -> dict[str, float]:
    return dict(zip(_FIGURES, (estimate.value, *estimate.interval()), strict=True))
