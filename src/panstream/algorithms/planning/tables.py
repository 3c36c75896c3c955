"""Plans, and how they are printed: as aligned plain text or as JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTable:
    """What every method can do about one question: ``asked`` is the question, ``rows`` are dataclasses, one a method.

    The fields of their ``kind`` that are a `column` are printed.
    """

    title: str
    asked: Mapping[str, Any]
    rows: tuple[Any, ...]
    kind: type[Any]

    def table(self) -> str:
        """Return the plan as aligned plain text."""
        columns = {row_field.name: row_field.metadata for row_field in fields(self.kind) if row_field.metadata}
        body = [[metadata["say"](getattr(row, name)) for name, metadata in columns.items()] for row in self.rows]
        right = [index for index, metadata in enumerate(columns.values()) if metadata["right"]]
        return format_table(self.title, [metadata["heading"] for metadata in columns.values()], body, right)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; infinite figures are the string "inf"."""
        rows = [{key: "inf" if value == math.inf else value for key, value in asdict(row).items()} for row in self.rows]
        return {**self.asked, "rows": rows}


def column(heading: str, say: Callable[[Any], str] = str, *, right: bool = False, **options: Any) -> Any:
    """Declare a field of a row that is printed under a heading, as ``say`` says it, flush right if asked.

    Keywords are those of ``dataclasses.field``.
    """
    return field(metadata={"heading": heading, "say": say, "right": right}, **options)


def format_count(number: int | None) -> str:
    """Return a number of something as it stands in a table; a dash for none.

    >>> format_count(12_345), format_count(None)
    ('12,345', '-')
    """
    return "-" if number is None else f"{number:,}"


def format_table(title: str, head: Sequence[str], body: Sequence[Sequence[str]], right: Collection[int]) -> str:
    """Return a titled table; the columns numbered in ``right`` are flush right.

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
