"""Plans, and how they are printed: as aligned plain text or as JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTable:
    """The methods that can answer one question: ``asked`` holds its parameters, ``rows`` one dataclass per method.

    The fields of their ``kind`` that are declared with `column` are printed. ``bounds`` are known lower bounds, or what
    is known instead, as sentences.
    """

    title: str
    asked: Mapping[str, Any]
    rows: tuple[Any, ...]
    kind: type[Any]
    bounds: tuple[str, ...] = ()

    def table(self) -> str:
        """Return the plan as aligned plain text."""
        columns = {row_field.name: row_field.metadata for row_field in fields(self.kind) if row_field.metadata}
        body = [[metadata["text_of"](getattr(row, name)) for name, metadata in columns.items()] for row in self.rows]
        right = [index for index, metadata in enumerate(columns.values()) if metadata["right"]]
        table = format_table(self.title, [metadata["heading"] for metadata in columns.values()], body, right)
        return "\n".join([table, *(["", *self.bounds] if self.bounds else [])])

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; infinite figures are the string "inf"."""
        rows = [{key: "inf" if value == math.inf else value for key, value in asdict(row).items()} for row in self.rows]
        return {**self.asked, "rows": rows, "lower_bounds": list(self.bounds)}


def column(heading: str, text_of: Callable[[Any], str] = str, *, right: bool = False, **options: Any) -> Any:
    """Declare a field of a row that is printed under a heading.

    Args:
        heading: Heading of the column.
        text_of: Formats a value of the field.
        right: Whether the column is right-aligned.
        options: Keywords of ``dataclasses.field``.
    """
    return field(metadata={"heading": heading, "text_of": text_of, "right": right}, **options)


def format_count(number: int | None) -> str:
    """Return an integer with thousands separators; a dash for None.

    >>> format_count(12_345), format_count(None)
    ('12,345', '-')
    """
    return "-" if number is None else f"{number:,}"


def format_table(title: str, head: Sequence[str], body: Sequence[Sequence[str]], right: Collection[int]) -> str:
    """Return a titled table; the columns numbered in ``right`` are right-aligned.

    >>> print(format_table("sizes", ("what", "bytes"), [("bits", "8"), ("ids", "1,024")], right={1}))
    sizes
    <BLANKLINE>
    what  bytes
    ----  -----
    bits      8
    ids   1,024
    """
    widths = [max(len(line[column]) for line in (head, *body)) for column in range(len(head))]
    lines = [
        "  ".join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in (head, *body)
    ]
    return "\n".join([title, "", lines[0], "  ".join("-" * width for width in widths), *lines[1:]])
