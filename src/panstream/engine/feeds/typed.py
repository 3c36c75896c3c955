"""Columns as found to columns as declared. Rows that do not fit stay where they are, null where they do not, and are marked.

So a row keeps its place and its time whatever else is wrong with it: when windows open and answers are due depends on times alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from operator import or_
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.engine.arrow import arrow_mask, compute, missing, pa, truth_of
from panstream.engine.feeds.arrow_columns import convert
from panstream.engine.feeds.layouts import check_layout
from panstream.engine.feeds.text_columns import NUMBERS, gathered, parse, parse_numbers
from panstream.engine.memory import NONE_LENT, Lent, wipe_unused
from panstream.engine.rows import Codes, Rows, RowSchema, arrow_type
from panstream.engine.stored_ids import StoredIds
from panstream.errors import FeedError

__all__ = ["empty", "from_arrow", "from_spans", "joined", "settled", "unread"]


def empty(schema: RowSchema) -> Rows:
    """Return no rows."""
    return Rows(columns=pa.RecordBatch.from_pylist([], schema.arrow()))


def unread(schema: RowSchema, code: int) -> Rows:
    """Return a row of which nothing could be read."""
    columns = [pa.nulls(1, arrow_type(kind)) for kind in schema.columns.values()]
    batch = pa.RecordBatch.from_arrays(columns, names=list(schema.columns))
    return Rows(columns=batch, codes=np.array([code], np.uint16))


def from_arrow(
    batch: Any, schema: RowSchema, *, ids: StoredIds | None = None, owned: bool = True, place: str = "the input"
) -> Rows:
    """Return the declared columns of an Arrow record batch, converted to their declared types; without the user's if ``ids`` are given.

    What had to be copied of a batch that is ``owned`` is overwritten; another's memory is lent, and never written on.
    """
    kinds = {name: kind for name, kind in schema.columns.items() if ids is None or name != schema.user}
    found = {name: batch.column(name) for name in kinds}
    lent = NONE_LENT if owned else Lent.of(found.values())
    codes = np.zeros(batch.num_rows, np.uint16)
    columns = _converted(found, kinds, schema, codes, place)
    piece = settled(columns, schema, codes, lent=lent)
    piece.ids = ids
    wipe_unused(found.values(), piece.columns.columns, lent)
    return piece


def _converted(
    found: Mapping[str, Any], kinds: Mapping[str, str], schema: RowSchema, codes: Codes, place: str
) -> dict[str, Any]:
    """Check and convert arrays, wherever they come from: anyone may have made them."""
    columns = {}
    name = ""
    try:
        for name, array in found.items():
            check_layout(array)
            columns[name], bad = convert(array, kinds[name], is_user=name == schema.user)
            _mark(codes, bad, schema.misfit(name))
        return columns
    except pa.ArrowException:  # whose message may quote a value
        pass
    raise FeedError(f"{place} could not be read: column {name!r} points outside its data")


def from_spans(
    data: Any,
    schema: RowSchema,
    codes: Codes,
    places: tuple[NDArray[Any], NDArray[Any]],
    present: NDArray[np.bool_],
    copy: Callable[[int, Any, Any], None],
    woven: NDArray[np.bool_] | None = None,
) -> Rows:
    """Return the declared columns, given by where their text begins and ends in ``data``, with a row for each column.

    ``copy`` writes the text of a column somewhere else; what is ``woven`` is no text before that. ``codes`` has what is already known to
    be wrong with each row.
    """
    columns, texts = {}, []
    for column, (name, kind) in enumerate(schema.columns.items()):
        first, last, there = places[0][column], places[1][column], present[column]
        if kind in NUMBERS and (woven is None or not woven[column].any()):
            columns[name], bad = parse_numbers(data, first, last, there, kind)
        else:
            texts.append(gathered(first, last, there, partial(copy, column)))
            columns[name], bad = parse(texts[-1], kind)
        _mark(codes, bad, schema.misfit(name))
    rows = settled(columns, schema, codes)
    wipe_unused(texts, rows.columns.columns)
    return rows


def settled(columns: dict[str, Any], schema: RowSchema, codes: Codes, *, lent: Lent = NONE_LENT) -> Rows:
    """Check what no conversion checks: missing ids, infinite numbers."""
    for name, column in columns.items():
        if name == schema.user and column.null_count:
            _mark(codes, truth_of(column.is_null()), schema.absent(name))
        if schema.columns[name] == "double" and not compute.all(compute.is_finite(column), min_count=0).as_py():
            bad = truth_of(compute.invert(compute.is_finite(column)))
            columns[name] = compute.if_else(arrow_mask(bad), missing(column.type), column)
            _mark(codes, bad, schema.misfit(name))
    batch = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    return Rows(columns=batch, codes=codes, lent=lent)


def _mark(codes: Codes, bad: NDArray[np.bool_] | None, code: int) -> None:
    """Note a fault of some rows; the first one of a row counts."""
    if bad is not None:
        codes[bad & (codes == 0)] = code


def joined(parts: Sequence[Rows], schema: RowSchema) -> Rows:
    """Return the rows of all, which must not be used any more: what was only theirs is overwritten."""
    if len(parts) == 1:
        return parts[0]
    if 0 < sum(part.ids is not None for part in parts) < len(parts):
        parts = [_with_ids(part, schema) for part in parts]
    batches = [part.columns for part in parts]
    table = pa.Table.from_batches(_one_encoding(batches)).unify_dictionaries().combine_chunks()
    columns = table.to_batches()[0] if table.num_rows else batches[0].slice(0, 0)
    for part in parts:
        wipe_unused(part.columns.columns, columns.columns, part.lent)
    stored = [part.ids for part in parts if part.ids is not None]
    return Rows(
        columns=columns,
        codes=np.concatenate([part.codes for part in parts]),
        ids=StoredIds.joined(stored) if stored else None,
        lent=reduce(or_, (part.lent for part in parts), NONE_LENT),
    )


def _with_ids(part: Rows, schema: RowSchema) -> Rows:
    """Return the same rows with the user column among the columns; those given must not be used any more."""
    if part.ids is None:
        return part
    try:
        ids = part.ids.chosen(np.ones(len(part), bool))
    finally:
        part.ids.wipe()
    arrays = [ids if name == schema.user else part.columns.column(name) for name in schema.columns]
    columns = pa.RecordBatch.from_arrays(arrays, names=list(schema.columns))
    return replace(part, columns=columns, ids=None)


def _one_encoding(batches: list[Any]) -> list[Any]:
    """Give every batch the schema of the first: a column may be dictionary-encoded in some and plain in others."""
    if all(batch.schema.equals(batches[0].schema) for batch in batches):
        return batches
    plain = []
    for batch in batches:
        columns = [c.dictionary_decode() if pa.types.is_dictionary(c.type) else c for c in batch.columns]
        plain.append(pa.RecordBatch.from_arrays(columns, names=batch.schema.names))
    return plain
