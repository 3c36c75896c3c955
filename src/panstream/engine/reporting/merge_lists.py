"""Merge published lists of names of several sites or windows into one.

Only published tables are added up, so that merging costs no privacy, and every answer retains its claim.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from panstream.algorithms.heavy_hitters.estimates import certain_ranks, decode_names
from panstream.algorithms.heavy_hitters.released_tables import ReleasedTables
from panstream.engine.planner.open_domain import certain_ranks_note, listed_note, named_items
from panstream.engine.reporting.point_queries import open_release_log
from panstream.engine.storage.release_log import ALL_CELLS, Release
from panstream.errors import InvalidParameter, MergeError


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedNames:
    """Names in the order of their counts, over all ``parts``: the answers that were added up, as (store, release).

    All intervals hold simultaneously with 95%; a name with at least ``listing_threshold`` events is listed with 95%.
    """

    key: str
    items: tuple[dict[str, Any], ...]
    listing_threshold: float
    parts: tuple[tuple[str, Release], ...]

    def note(self, limit: int) -> str:
        """Return one sentence about which names are listed, and how many of the first ``limit`` are certain."""
        note = listed_note(self.listing_threshold)
        if not self.items:
            return f"no name stands out; {note}"
        sure = certain_ranks([item["interval"] for item in self.items], limit, self.listing_threshold)
        return note if limit >= len(self.items) else f"{note}; {certain_ranks_note(sure, limit)}"

    @property
    def costs(self) -> list[str]:
        """Return the distinct claims under which the answers were published, as text."""
        return list(dict.fromkeys(_cost(release.record["claim"]) for _, release in self.parts))

    @property
    def by_user(self) -> bool:
        """Return whether some answer protects users, who may be in several of them."""
        return any(release.record["claim"]["unit"] != "event" for _, release in self.parts)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        parts = [
            {"store": store, "query": release.query, "number": release.number}
            | {name: release.record[name] for name in ("window", "claim") if name in release.record}
            for store, release in self.parts
        ]
        return {
            "key": self.key,
            "items": list(self.items),
            "listing_threshold": self.listing_threshold,
            "level": 0.95,
            "parts": parts,
        }


def merge_lists(stores: Sequence[str | Path], *, query: str | None = None, all_windows: bool = False) -> MergedNames:
    """Merge the latest lists of names of several stores, or all retained lists.

    Args:
        stores: Directories; they retain all cells of the last ``[store] keep_prefixes`` answers.
        query: Which query, if a store has several that count names.
        all_windows: Add all retained answers, also of different windows.

    Raises:
        InvalidParameter: A store has no such tables, or there is only one answer.
        MergeError: The answers have different keys or windows, or one was given twice.
    """
    parts: list[tuple[str, Release]] = []
    cells: list[bytes] = []
    for store in stores:
        label = Path(store).resolve().name if Path(store).name in ("", ".", "..") else str(store)
        with open_release_log(store) as log:
            releases = [release for release in log.with_tables(ALL_CELLS) if query in (None, release.query)]
            if len({release.query for release in releases}) > 1:
                query_names = ", ".join(sorted({release.query for release in releases}))
                raise InvalidParameter(
                    f"{label!r} has names of several queries: choose one with --query ({query_names})"
                )
            if not releases:
                of = "" if query is None else f" of {query!r}"
                raise InvalidParameter(f"{label!r} has no published lists of names{of}")
            for window_release in releases if all_windows else releases[-1:]:
                parts.append((label, window_release))
                cells.append(log.table(window_release.query, window_release.number, ALL_CELLS))
    _check(parts, cells, all_windows=all_windows)
    tables = ReleasedTables.added([ReleasedTables.from_bytes(table_bytes) for table_bytes in cells])
    has_integer_names = any(isinstance(item["name"], int) for _, release in parts for item in release.record["items"])
    return MergedNames(
        key=parts[0][1].record["key"],
        items=tuple(named_items(decode_names(tables).items, whole=has_integer_names)),
        listing_threshold=tables.listing_threshold,
        parts=tuple(parts),
    )


def _check(parts: Sequence[tuple[str, Release]], cells: Sequence[bytes], *, all_windows: bool) -> None:
    if len(parts) < 2:
        raise InvalidParameter("there is one answer only: name several stores, or add all windows of one with --all")
    keys = sorted({release.record["key"] for _, release in parts})
    if len(keys) > 1:
        raise MergeError(f"the answers list different keys: {', '.join(keys)}")
    if len(set(cells)) < len(cells):
        raise MergeError("the same answer was given twice: a store must not be named again, nor a copy of it")
    windows = {tuple(release.record.get("window", ())) for _, release in parts}
    if len(windows) > 1 and not all_windows:
        starts = ", ".join(f"{store} from {release.record.get('window', ['the start'])[0]}" for store, release in parts)
        raise MergeError(f"the latest answers are about different windows ({starts}); with --all everything is added")


def _cost(claim: dict[str, Any]) -> str:
    slack = f", delta {claim['delta']:g}" if claim["delta"] else ""
    return f"epsilon {float(claim['epsilon']):g}{slack} for one {claim['unit']}"
