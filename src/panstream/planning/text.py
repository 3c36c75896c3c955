"""Plans, and how they are printed: as aligned plain text or as JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What every method can do about one question: ``asked`` is the question, ``rows`` are dataclasses, one a method.

    ``columns`` says how a row is printed, by heading; the columns numbered in ``right`` are flush right.
    """

    title: str
    asked: Mapping[str, Any]
    rows: tuple[Any, ...]
    columns: Mapping[str, Callable[[Any], str]]
    right: Collection[int]

    def table(self) -> str:
        """Return the plan as aligned plain text."""
        body = [[say(row) for say in self.columns.values()] for row in self.rows]
        return aligned(self.title, list(self.columns), body, self.right)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; infinite figures are the string "inf"."""
        rows = [{key: "inf" if value == math.inf else value for key, value in asdict(row).items()} for row in self.rows]
        return {**self.asked, "rows": rows}


def aligned(title: str, head: Sequence[str], body: Sequence[Sequence[str]], right: Collection[int]) -> str:
    """Return a titled table; the columns numbered in ``right`` are flush right.

    >>> print(aligned("sizes", ("what", "bytes"), [("bits", "8"), ("ids", "1,024")], right={1}))
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
