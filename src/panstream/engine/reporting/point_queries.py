"""Point queries: the count of any one name, from published tables and never from the live state, at no cost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from panstream.algorithms.heavy_hitters.point_counts import PointCounts
from panstream.engine.sql.expressions import limit_nesting, parse_sql
from panstream.engine.storage.release_log import Release, ReleaseLog
from panstream.errors import InvalidParameter
from panstream.privacy.claim import Claim

_LOG = "releases.sqlite"


def point_query(
    store: str | Path, condition: str, *, query: str | None = None, all_windows: bool = False
) -> list[dict[str, Any]]:
    """Return the counts of some names, each with a 95% interval of its own, from the tables that a store published.

    Args:
        store: Directory of the store.
        condition: Such as ``page = '/x'`` or ``page IN ('/x', '/y')``.
        query: Which query, if several count the same key.
        all_windows: Answer for every published window, not only the latest.

    Raises:
        InvalidParameter: The condition is invalid, or the store has published no such names.
    """
    key, names = parse_name_condition(condition)
    with open_release_log(store) as log:
        lists = [release for release in log.with_tables() if "key" in release.record]
        published = [release for release in lists if query in (None, release.query)]
        with_key = [release for release in published if release.record["key"] == key]
        if not with_key:
            known_keys = ", ".join(sorted({release.record["key"] for release in published}))
            others = f"lists were published of {known_keys}" if known_keys else "no list was published yet"
            raise InvalidParameter(f"no list of {key!r} names was published; {others}")
        last = {release.query: release for release in with_key}
        chosen = with_key if all_windows else list(last.values())
        return [
            row for release in chosen for row in count_names(release, log.table(release.query, release.number), names)
        ]


def open_release_log(store: str | Path) -> ReleaseLog:
    """Open the release log of a store; raise InvalidParameter if there is none."""
    path = Path(store) / _LOG
    if not path.exists():
        raise InvalidParameter(f"{Path(store).resolve().name!r} holds no published answers")
    return ReleaseLog(path)


def count_names(release: Release, table: bytes, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the counts of names from the table of one release."""
    points = PointCounts.from_bytes(table)
    claim_json = release.record["claim"]
    claim = Claim(
        epsilon=float(claim_json["epsilon"]),
        delta=claim_json["delta"],
        unit=claim_json["unit"],
        window=claim_json["window"],
    )
    rows = []
    for name in names:
        estimate = points.count(name, claim)
        row: dict[str, Any] = {"query": release.query, "number": release.number, "time": release.time}
        if "window" in release.record:
            row["window"] = release.record["window"]
        row |= {"key": release.record["key"], "name": points.shown(name), "value": estimate.value}
        row["unclipped"] = estimate.unclipped
        row |= {"standard_error": estimate.standard_error, "interval": list(estimate.interval()), "level": 0.95}
        rows.append(row)
    return rows


@limit_nesting
def parse_name_condition(condition: str) -> tuple[str, list[str]]:
    """Return the column and the names of a condition.

    >>> parse_name_condition("page IN ('/', '/about')"), parse_name_condition("code = -7")
    (('page', ['/', '/about']), ('code', ['-7']))
    """
    tree = parse_sql(condition)
    kind = type(tree).__name__
    literals = tree.expressions if kind == "In" else [tree.expression] if kind == "EQ" else []
    names = [_literal(literal) for literal in literals]
    if not names or None in names or type(tree.this).__name__ != "Column":
        raise InvalidParameter("ask takes COLUMN = 'name' or COLUMN IN ('name', ...)")
    return str(tree.this.name), [name for name in names if name is not None]


def _literal(node: Any) -> str | None:
    if type(node).__name__ == "Neg":
        inner = _literal(node.this)
        return None if inner is None else f"-{inner}"
    return str(node.this) if type(node).__name__ == "Literal" else None
