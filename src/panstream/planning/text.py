"""Plans as aligned plain text."""

from __future__ import annotations

from collections.abc import Collection, Sequence

__all__ = ["aligned"]


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
