"""Statements about published sketches, which look at no rows: they are refused where rows are asked."""

from __future__ import annotations

from typing import Any

from panstream.engine.sql.expressions import FROM_SKETCHES, StatementText
from panstream.errors import UnsupportedQuery


def without_overlap(tree: Any, statement: StatementText) -> Any:
    """Return a parsed SELECT; raise UnsupportedQuery if it has OVERLAP(a, b)."""
    from sqlglot import expressions

    for function in tree.find_all(expressions.Anonymous):
        if function.name.upper() == "OVERLAP":
            raise statement.refuse(function, "OVERLAP compares published sketches, not rows", FROM_SKETCHES)
    return tree


def without_range_of_windows(tree: Any) -> Any:
    """Return a parsed SELECT; raise UnsupportedQuery if it names no file and has ``window BETWEEN`` dates."""
    from sqlglot import expressions

    ranges = [between.this.name for between in tree.find_all(expressions.Between)]
    if "window" in ranges and not any(table.this.quoted for table in tree.find_all(expressions.Table)):
        raise UnsupportedQuery("ranges of windows are counted from published sketches, not rows", hint=FROM_SKETCHES)
    return tree
